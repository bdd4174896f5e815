"""Best-1 of several samples: the score of a perfect choice among the captions of an image.

For each metric the oracle takes, of an image's n samples, the one with the highest score. Papers
print the mean over images of that highest score (COS-CVAE's "Oracle-20", "Oracle-100"), for BLEU
too, where it is the caption's own BLEU: `OracleResult.mean`. `OracleResult.corpus_bleu` is the
corpus BLEU of the chosen captions, chosen for each of BLEU-1 to BLEU-4 by the caption's own BLEU of
that n: it compares with the corpus BLEU of one caption an image, and is no maximum, since each
choice is made alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from captioning.metrics.bleu import prepare_bleu, score_bleu
from captioning.metrics.cider import VARIANTS, CiderReferences, CiderStatistics, Floats, Ints
from captioning.metrics.coco import ALL_METRICS, BLEU, METRICS, hash_references
from captioning.metrics.diversity import Tokenize, check_texts, tokenized, tokenizer_name
from captioning.metrics.java import JavaError
from captioning.metrics.meteor import score_meteor
from captioning.metrics.rouge import prepare_rouge, score_rouge
from captioning.metrics.spice import score_spice
from captioning.metrics.tokenizer import tokenize_ptb

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleResult:
    """Best-1 scores of several samples an image.

    Attributes:
        mean: mean over images of the highest score, by metric: the oracle of the papers.
        corpus_bleu: BLEU-1 to BLEU-4 of the whole set of captions chosen.
        per_image: ``{image_id: {name: highest score}}``.
        best: ``{image_id: {name: number of the sample}}``, the first of equal ones.
        settings: tokenizer, ``references_hash``, ``cider_statistics`` where CIDEr was asked for,
            ``num_images``, ``num_samples`` (the most of an image) and ``missing``, as in
            `captioning.metrics.coco.MetricResult`.
    """

    mean: dict[str, float]
    corpus_bleu: dict[str, float]
    per_image: dict[str, dict[str, float]]
    best: dict[str, dict[str, int]]
    settings: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Samples:
    """Distinct tokenized captions of each image, those of an image one after another."""

    texts: list[str]
    image: Ints  # (P,) number of the image
    first: Ints  # (P,) number of the first sample with this text
    references: list[list[str]]  # of the images

    def of_each(self, values: Sequence[T]) -> list[T]:
        """For each caption what belongs to its image."""
        return [values[number] for number in self.image]


def evaluate_oracle(
    candidates: Mapping[str, Sequence[str]],
    references: Mapping[str, Sequence[str]],
    *,
    metrics: Sequence[str] = METRICS,
    tokenize: Tokenize | None = tokenize_ptb,
    statistics: CiderStatistics | None = None,
    spice_folder: Path | None = None,
    timeout: float | None = None,
) -> OracleResult:
    """Score every sample of every image and take the best.

    All texts are tokenized once, and a caption that comes twice for an image is scored once.

    Args:
        candidates: captions of each image, any number each.
        references: captions of at least these images.
        metrics: some of `captioning.metrics.coco.ALL_METRICS`.
        tokenize: such as `tokenize_ptb` or `tokenize_python`; None if all captions are tokenized.
        statistics: document frequencies of CIDEr-D and CIDEr; by default those of these references.
        spice_folder: where SPICE's jars are.
        timeout: seconds for each Java process.

    Returns:
        The scores; a metric that Java or its jars kept from being computed is in ``missing``.

    Raises:
        TypeError: candidates or references of an image that are no list of texts.
        ValueError: no images, an image without candidates or references, or an unknown metric.
        JavaError: the tokenizer needs Java and there is none.
    """
    _check(candidates, references, metrics)
    samples = _tokenize(candidates, references, tokenize)
    if statistics is None and any(name in VARIANTS for name in metrics):
        statistics = CiderStatistics.count(samples.references, source="the references scored")
    columns: dict[str, Floats] = {}
    missing: dict[str, str] = {}
    ids = list(candidates)
    for metric in metrics:
        try:
            columns |= _score(metric, ids, samples, statistics, spice_folder, timeout)
        except JavaError as error:
            missing[metric] = str(error)
    best = {name: _best(scores, samples.image) for name, scores in columns.items()}
    highest = {name: scores[best[name]] for name, scores in columns.items()}
    settings = {
        "tokenizer": tokenizer_name(tokenize),
        "references_hash": hash_references(ids, [list(references[i]) for i in ids]),
        "num_images": len(ids),
        "num_samples": max(map(len, candidates.values())),
        "missing": missing,
    }
    if statistics is not None:
        settings["cider_statistics"] = statistics.settings()
    return OracleResult(
        mean={name: float(scores.mean()) for name, scores in highest.items()},
        corpus_bleu=_corpus_bleu(samples, best) if "BLEU" in metrics else {},
        per_image=_by_image(ids, highest, float),
        best=_by_image(ids, {name: samples.first[rows] for name, rows in best.items()}, int),
        settings=settings,
    )


def _tokenize(
    candidates: Mapping[str, Sequence[str]],
    references: Mapping[str, Sequence[str]],
    tokenize: Tokenize | None,
) -> _Samples:
    groups = [*candidates.values(), *(references[image_id] for image_id in candidates)]
    rest = iter(tokenized([text for group in groups for text in group], tokenize))
    tokens = [[next(rest) for _ in group] for group in groups]
    texts, image, first = [], [], []
    for number, group in enumerate(tokens[: len(candidates)]):
        first_position: dict[str, int] = {}
        for sample, text in enumerate(group):
            first_position.setdefault(text, sample)
        texts += first_position
        first += first_position.values()
        image += [number] * len(first_position)
    return _Samples(
        texts=texts,
        image=np.array(image),
        first=np.array(first),
        references=tokens[len(candidates) :],
    )


def _score(
    metric: str,
    image_ids: Sequence[str],
    samples: _Samples,
    statistics: CiderStatistics | None,
    folder: Path | None,
    timeout: float | None,
) -> dict[str, Floats]:
    """Scores ``(P,)`` of the distinct captions by reported name."""
    if metric == "BLEU":
        scores = score_bleu(samples.texts, samples.of_each(prepare_bleu(samples.references)))[1]
        return dict(zip(BLEU, map(np.array, scores), strict=True))
    if metric in VARIANTS:
        prepared = CiderReferences.prepare(samples.references, statistics)
        return {metric: prepared.score(samples.texts, samples.image, variant=metric)}
    references = samples.of_each(samples.references)
    if metric == "ROUGE-L":
        result = score_rouge(samples.texts, samples.of_each(prepare_rouge(samples.references)))
    elif metric == "METEOR":
        result = score_meteor(samples.texts, references, timeout=timeout)
    else:
        ids = [f"{image_ids[i]}#{row}" for row, i in enumerate(samples.image)]
        result = score_spice(ids, samples.texts, references, folder=folder, timeout=timeout)
    return {metric: np.array(result[1])}


def _corpus_bleu(samples: _Samples, best: Mapping[str, Ints]) -> dict[str, float]:
    """Of the whole set that each of BLEU-1 to BLEU-4 chose, the corpus score of that n."""
    prepared = prepare_bleu(samples.references)
    return {
        name: score_bleu([samples.texts[row] for row in best[name]], prepared)[0][order]
        for order, name in enumerate(BLEU)
    }


def _best(scores: Floats, image: Ints) -> Ints:
    """Row of each image's highest score, the first of equal ones, ``(I,)``."""
    order = np.lexsort((-scores, image))  # stable: equal scores stay in order
    return order[np.append(True, image[1:] != image[:-1])]


def _by_image(image_ids: Sequence[str], columns: Mapping[str, Any], kind: type) -> dict[str, Any]:
    return {
        image_id: {name: kind(values[row]) for name, values in columns.items()}
        for row, image_id in enumerate(image_ids)
    }


def _check(
    candidates: Mapping[str, Sequence[str]],
    references: Mapping[str, Sequence[str]],
    metrics: Sequence[str],
) -> None:
    unknown = [name for name in metrics if name not in ALL_METRICS]
    if isinstance(metrics, str) or unknown or not metrics:
        raise ValueError(f"metrics must be some of {ALL_METRICS}: got {metrics!r}")
    if not candidates:
        raise ValueError("no candidates: there is nothing to score")
    chosen = {image_id: references.get(image_id, ()) for image_id in candidates}
    for name, groups in (("candidates", candidates), ("references", chosen)):
        check_texts(groups, name)
        empty = [image_id for image_id, group in groups.items() if not group]
        if empty:
            raise ValueError(
                f"{name} of image {empty[0]!r} must be a list of one or more: got none"
            )
