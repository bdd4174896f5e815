"""Score any lists of captions in one call, with a confidence interval per score.

A layer over `captioning.metrics.evaluation.evaluate_all` for captions outside this project's
datasets: checks, scores and intervals are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioning.interfaces import JointEmbedder
from captioning.metrics.bootstrap import Bootstrap
from captioning.metrics.cider import CiderStatistics
from captioning.metrics.coco import ALL_METRICS, METRICS, MetricResult, TokenizerName
from captioning.metrics.evaluation import evaluate_all, mean_intervals
from captioning.types import Sample

CLIPSCORE = "CLIPScore"
_BOOTSTRAP = Bootstrap()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionScores:
    """Scores of N candidate captions, as fractions (CIDEr-D and CIDEr up to 10).

    Attributes:
        corpus: score of the whole list by name; scores that could not be computed are absent.
        intervals: lower and upper bound of each corpus score; empty without a bootstrap.
        per_caption: N scores by name, in the order of the candidates.
        settings: settings of the computation, see `captioning.metrics.coco.MetricResult`.

    Examples:
        >>> from captioning import score
        >>> scores = score(["a dog"], [["a cat"]], metrics=["ROUGE-L"], bootstrap=None)
        >>> scores.per_caption
        {'ROUGE-L': [0.5]}
    """

    corpus: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    per_caption: dict[str, list[float]]
    settings: dict[str, Any]

    @property
    def missing(self) -> dict[str, str]:
        """Reasons why requested metrics are absent, with remedies."""
        return self.settings["missing"]

    def __str__(self) -> str:
        """Format scores with their intervals, one per line, and the missing metrics."""
        lines = []
        for name, value in self.corpus.items():
            ends = self.intervals.get(name)
            spread = f"  [{ends[0]:.4f}, {ends[1]:.4f}]" if ends else ""
            lines.append(f"{name:<8} {value:.4f}{spread}")
        return "\n".join(lines + [f"{name}: missing: {why}" for name, why in self.missing.items()])


def score(
    candidates: Iterable[str],
    references: Iterable[Iterable[str]],
    *,
    metrics: Sequence[str] | None = None,
    photos: Iterable[str | Path] | None = None,
    encoder: JointEmbedder | None = None,
    tokenizer: TokenizerName = "ptb",
    cider_statistics: CiderStatistics | None = None,
    bootstrap: Bootstrap | None = _BOOTSTRAP,
) -> CaptionScores:
    """Score captions against references.

    Args:
        candidates: N captions, one a photo, raw text; ``""`` for one that is missing.
        references: N lists of one or more captions, raw text, in the same order.
        metrics: some of ``"BLEU"`` (gives BLEU-1 to BLEU-4), ``"METEOR"``, ``"ROUGE-L"``,
            ``"CIDEr-D"``, ``"SPICE"``, ``"CIDEr"`` and ``"CLIPScore"``; None for the first five,
            and CLIPScore where there is an encoder.
        photos: N paths, for CLIPScore.
        encoder: the space of CLIPScore, such as `captioning.vision.clip.build_clip` gives; the
            score is named after it.
        tokenizer: ``"ptb"`` (Java, as published scores) or ``"python"``; see `evaluate_captions` of
            `captioning.metrics.coco`.
        cider_statistics: document frequencies of a corpus for CIDEr-D and CIDEr, in place of those
            of these references.
        bootstrap: bootstrap of the intervals, over photos; None for none.

    Returns:
        The scores. METEOR and SPICE are in ``missing``, with the remedy, where Java or its jars are
        absent.

    Raises:
        TypeError: candidates or references that are not lists of text; the message names the item.
        ValueError: lists of different lengths, none at all, references that are all empty, an
            unknown metric, or CLIPScore without photos and encoder.

    Examples:
        >>> from captioning import score
        >>> own = {"metrics": ["BLEU", "CIDEr-D"], "tokenizer": "python", "bootstrap": None}
        >>> scores = score(["a dog runs", "a cat"], [["the dog runs"], ["a cat", "cats"]], **own)
        >>> round(scores.corpus["BLEU-1"], 2)
        0.8
    """
    texts = _texts(candidates, "candidates", may_be_blank=True)
    groups = _reference_lists(references, len(texts))
    if metrics is None:
        metrics = METRICS if encoder is None else (*METRICS, CLIPSCORE)
    _check_metrics(metrics)
    images = _Images(groups, _paths(photos, len(texts)) if CLIPSCORE in metrics else [])
    extra = {"clipscore": _similarity(encoder)} if CLIPSCORE in metrics else {}
    captions = {str(number): [text] for number, text in enumerate(texts)}
    standard = [name for name in metrics if name != CLIPSCORE]
    if standard:
        result = evaluate_all(
            captions,
            images,
            extra=extra,
            bootstrap=bootstrap,
            metrics=standard,
            tokenizer=tokenizer,
            cider_statistics=cider_statistics,
        )
    else:
        result = extra["clipscore"].score(captions, images)
    return _caption_scores(result, captions, bootstrap)


class _Images:
    """Adapter that presents plain lists of captions and photos to metrics."""

    def __init__(self, references: Sequence[list[str]], photos: Sequence[Path]) -> None:
        self._references = {str(number): texts for number, texts in enumerate(references)}
        self.samples = [
            Sample(row=n, sample_id=str(n), image_id=str(n), image_path=path, caption="")
            for n, path in enumerate(photos)
        ]

    def references(self) -> dict[str, list[str]]:
        return self._references


def _caption_scores(
    result: MetricResult, captions: Mapping[str, Any], bootstrap: Bootstrap | None
) -> CaptionScores:
    ends = result.intervals
    if bootstrap is not None and not ends:  # CLIPScore alone
        ends = mean_intervals(result, list(captions), bootstrap)
    return CaptionScores(
        corpus=result.corpus,
        intervals=ends,
        per_caption={
            name: [result.per_image[image_id][name] for image_id in captions]
            for name in result.corpus
        },
        settings={key: value for key, value in result.settings.items() if key != "decoding"},
    )


def _similarity(encoder: JointEmbedder | None) -> Any:
    if encoder is None:
        raise ValueError(
            "CLIPScore needs photos=[PATH, ...] and encoder=build_clip() (of "
            "captioning.vision.clip); leave it out to score by references alone"
        )
    from captioning.metrics.extra import Similarity  # imports all further metrics

    return Similarity(encoder=encoder)


def _check_metrics(metrics: Sequence[str]) -> None:
    known = (*ALL_METRICS, CLIPSCORE)
    unknown = [name for name in metrics if name not in known]
    if isinstance(metrics, str) or unknown or not metrics:
        raise ValueError(
            f'metrics must be a list with some of {known} ("BLEU" gives BLEU-1 to BLEU-4): got '
            f"{metrics!r}"
        )


def _paths(photos: Iterable[str | Path] | None, number: int) -> list[Path]:
    if photos is None or isinstance(photos, str | Path):
        raise ValueError(f"photos must be a list of {number} paths for CLIPScore: got {photos!r}")
    paths = [Path(path) for path in photos]
    if len(paths) != number:
        raise ValueError(f"photos must be one for each of {number} candidates: got {len(paths)}")
    return paths


def _texts(values: Any, name: str, *, may_be_blank: bool) -> list[str]:
    """Check a list of captions; raise an error for a string or for items that are not strings."""
    if isinstance(values, str | bytes | Mapping | Set) or not isinstance(values, Iterable):
        raise TypeError(
            f"{name} must be a list of captions: got {type(values).__name__} {values!r:.60}"
        )
    texts = list(values)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            remedy = '; give "" for a missing caption' if may_be_blank else ""
            raise TypeError(f"{name}[{number}] must be a string: got {text!r:.60}{remedy}")
    if not texts or not (may_be_blank or any(text.strip() for text in texts)):
        raise ValueError(f"{name} must hold at least one caption: got {texts!r:.60}")
    return [str(text) for text in texts]


def _reference_lists(references: Any, number: int) -> list[list[str]]:
    if isinstance(references, str | bytes | Mapping | Set) or not isinstance(references, Iterable):
        raise TypeError(
            "references must be a list with one list of captions per candidate: got "
            f"{type(references).__name__}; pass dictionaries by id to "
            "captioning.metrics.coco.evaluate_captions"
        )
    groups = list(references)
    if len(groups) != number:
        sizes = {len(group) for group in groups if isinstance(group, Collection)}
        hint = (
            "; they look like one list per set of references (as in sacreBLEU): transpose them "
            "with list(zip(*references))"
        )
        raise ValueError(
            f"references must hold one list for each of {number} candidates: got {len(groups)} "
            f"lists{hint if sizes == {number} else ''}"
        )
    if groups and isinstance(groups[0], str):
        raise TypeError(
            f"references[0] must be a list of captions: got the string {groups[0]!r:.60}; if each "
            "candidate has one reference, write [[text] for text in references]"
        )
    return [
        _texts(group, f"references[{row}]", may_be_blank=False) for row, group in enumerate(groups)
    ]
