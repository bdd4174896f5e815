"""Measure how similar two text corpora are: ``captioning augment compare out=FOLDER``.

Settings are in ``configs/compare_texts.yaml``; docs/cards/toca.md describes the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from augmentation.plane import two_dimensions
from augmentation.toca.corpus_statistics import CorpusStatistics
from augmentation.toca.method import corpus_statistics
from augmentation.toca.templates import slots_of
from augmentation.training.weights_card import write_card
from captioning.config.build import build_part
from captioning.config.ranges import AbstractSettings, Name, PositiveFloat, PositiveInt, Seed
from captioning.config.tasks import recorded
from captioning.runtime.files import write_atomically
from captioning.training.rosters import read_corpus
from captioning.training.settings import Corpus, Data, Part, Paths

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusSimilarity:
    """Measures of Table 7 that compare corpus D with corpus T, each in [0, 1].

    Attributes:
        precision: share of D's different items that T has, too.
        recall: share of T's different items that D has, too.
        weighted_precision, weighted_recall: the same shares of all occurrences.
        cosine: between the two vectors of counts.
    """

    precision: float
    recall: float
    weighted_precision: float
    weighted_recall: float
    cosine: float


def compare_counts(synthetic: Mapping[Item, int], target: Mapping[Item, int]) -> CorpusSimilarity:
    """Compute the measures for counted items.

    Args:
        synthetic: counts in D, at least one.
        target: counts in T, at least one.
    """
    common = synthetic.keys() & target.keys()
    product = sum(synthetic[item] * target[item] for item in common)
    lengths = [sum(count**2 for count in counts.values()) ** 0.5 for counts in (synthetic, target)]
    return CorpusSimilarity(
        precision=len(common) / len(synthetic),
        recall=len(common) / len(target),
        weighted_precision=sum(synthetic[item] for item in common) / sum(synthetic.values()),
        weighted_recall=sum(target[item] for item in common) / sum(target.values()),
        cosine=product / (lengths[0] * lengths[1]),
    )


def compare_corpora(
    synthetic: CorpusStatistics, target: CorpusStatistics
) -> dict[str, CorpusSimilarity]:
    """Compare by ``"token"`` (lexical words of all parts of speech), ``"structure"``, ``"slots"``.

    Slots are a structure's parts of speech without its function words. The paper does not define
    its counts: Flickr30k's measures on COCO come near to the printed ones by slots alone.
    """
    return {
        "token": compare_counts(_tokens(synthetic), _tokens(target)),
        "structure": compare_counts(_structures(synthetic), _structures(target)),
        "slots": compare_counts(_slots(synthetic), _slots(target)),
    }


def _tokens(statistics: CorpusStatistics) -> Counter[str]:
    counts: Counter[str] = Counter()
    for word, count in zip(statistics.words, statistics.word_counts.tolist(), strict=True):
        counts[word] += count
    return counts


def _structures(statistics: CorpusStatistics) -> dict[str, int]:
    return dict(zip(statistics.structures, statistics.structure_counts.tolist(), strict=True))


def _slots(statistics: CorpusStatistics) -> Counter[str]:
    counts: Counter[str] = Counter()
    for structure, count in _structures(statistics).items():
        counts[slots_of(structure)] += count
    return counts


def draw_neighbourhoods(
    path: Path,
    *,
    synthetic: Sequence[str],
    target: Sequence[str],
    embed: Callable[[Sequence[str]], Tensor],
    ratios: Sequence[float],
    num_target: int,
    project: Callable[[np.ndarray], np.ndarray],
    generator: np.random.Generator,
) -> dict[str, int]:
    """Draw Figure 3: texts of both corpora in 2D, with more synthetic texts in each panel.

    Args:
        path: the picture's path.
        synthetic, target: captions of D and of T.
        embed: unit vectors ``(N, E)`` of texts.
        ratios: synthetic captions shown for each one of the target; at most all of them.
        num_target: captions of the target that are shown.
        project: vectors to the plane, ``(N, 2)``.
        generator: draws the captions.

    Returns:
        Numbers of captions shown, by panel.
    """
    target_texts = _draw(target, num_target, generator)
    figure = Figure(figsize=(4 * len(ratios), 4), layout="constrained")
    FigureCanvasAgg(figure)
    counts = {}
    for axes, ratio in zip(figure.subplots(1, len(ratios), squeeze=False)[0], ratios, strict=True):
        synthetic_texts = _draw(synthetic, max(1, round(ratio * len(target_texts))), generator)
        texts = (*target_texts, *synthetic_texts)
        vectors = embed(texts).float().cpu().numpy()
        points = project(vectors)
        axes.scatter(*points[: len(target_texts)].T, s=2, label=f"target, {len(target_texts):,}")
        axes.scatter(*points[len(target_texts) :].T, s=2, label=f"made, {len(synthetic_texts):,}")
        axes.set(title=f"{ratio:g}x", xticks=[], yticks=[])
        axes.legend(frameon=False, loc="lower left")
        counts[f"{ratio:g}x"] = len(synthetic_texts)
    write_atomically(path, lambda part: figure.savefig(part, dpi=120))
    return counts | {"target": len(target_texts)}


def _draw(captions: Sequence[str], number: int, generator: np.random.Generator) -> tuple[str, ...]:
    rows = generator.choice(len(captions), min(number, len(captions)), replace=False)
    return tuple(str(captions[int(row)]) for row in rows)


@dataclass(frozen=True, kw_only=True)
class FigureSettings(AbstractSettings):
    """Settings for the captions in Figure 3.

    Attributes:
        ratios: captions shown for each of the target; none: no figure.
        num_target: captions of the target.
    """

    ratios: Sequence[PositiveFloat]
    num_target: PositiveInt


def compare(
    *,
    paths: Paths | None = None,
    data: Data | None = None,
    corpus: Corpus,
    target: Corpus,
    similarity: Mapping[str, Part],
    seed: Seed = 0,
    first_images: PositiveInt | None = None,
    tagger: Part,
    cache_folder: Name,
    figure: FigureSettings,
    out: Name,
    plugins: Sequence[Name] = (),
) -> dict[str, Any]:
    """Write a card with the measures of Table 7, and Figure 3.

    Args:
        paths: folders, for the card alone.
        data: the dataset that ``corpus=own`` refers to, for the card alone.
        corpus: captions.
        target: captions that they are compared with.
        similarity: ``encoder``, which embeds the captions of the figure.
        seed: the figure's seed.
        first_images: images read of each corpus; None: all.
        tagger: tagger of words.
        cache_folder: folder of statistics.
        figure: the figure's content.
        out: folder of card and figure.
        plugins: packages of the parts, for the card alone.

    Returns:
        The card.

    Raises:
        ValueError, OSError: a corpus cannot be read, or something cannot be written.
    """
    settings = recorded(locals())
    groups = {"corpus": corpus, "target": target}
    rosters = {name: read_corpus(g, number=first_images, group=name) for name, g in groups.items()}
    words, folder = build_part(tagger), Path(out)
    statistics = {
        group: corpus_statistics(roster, words, Path(cache_folder))
        for group, roster in rosters.items()
    }
    similarities = compare_corpora(statistics["corpus"], statistics["target"])
    texts = {
        group: [sample.caption for sample in roster.samples] for group, roster in rosters.items()
    }
    figure_counts = None
    if figure.ratios:
        figure_counts = draw_neighbourhoods(
            folder / "tsne.png",
            synthetic=texts["corpus"],
            target=texts["target"],
            embed=build_part(similarity["encoder"]).embed_texts,
            ratios=figure.ratios,
            num_target=figure.num_target,
            project=partial(two_dimensions, seed=seed),
            generator=np.random.default_rng(seed),
        )
    return write_card(
        folder,
        description="how near a corpus is to another (precision and recall are of the corpus)",
        rosters=rosters,
        settings=settings,
        statistics={group: value.summary() for group, value in statistics.items()},
        likeness={name: asdict(value) for name, value in similarities.items()},
        figure=figure_counts,
    )
