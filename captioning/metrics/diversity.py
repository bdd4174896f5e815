"""Several captions of an image: how much they differ, and the score of a perfect choice among them.

Names and definitions follow Mahajan and Roth (2020, tables on diversity) and Wang and Chan (2019).
All are of n captions an image, n at least 2 and free to differ between images; all but the count of
novel sentences are fractions in [0, 1].

- ``uniqueness``: distinct captions of an image / its captions. Higher is more diverse.
- ``novelty``: share of captions that equal no training caption, word for word; ``novel-sentences``
  is their number over all images, which papers print: 4,404, say, of the 5,000 that the best 5 of
  the 1,000 test images of the m-RNN split are.
- ``mBLEU-4``: BLEU-4 of a caption against the others of its image; lower is more diverse. As the
  papers' code has it, corpus BLEU over the images of all first captions, of all second ones and so
  on, averaged. ``mBLEU-4-sentence`` is the mean of each caption's own BLEU-4, which is 0 without
  a common 4-gram, and so much lower.
- ``Div-1``, ``Div-2``: distinct words (pairs of words) of all captions of an image / their words.
- ``self-CIDEr``: -log_n(r) for the n × n matrix K of the CIDEr-D between the captions of an image,
  r the largest of the square roots of K's eigenvalues over their sum. 0 where all captions are
  equal, 1 where no two share an n-gram; an empty caption adds nothing.

A score of the set is the mean over images, save for ``mBLEU-4`` and ``novel-sentences``.

`evaluate_oracle` takes for each metric, of an image's n samples, the one with the highest score.
Papers print the mean over images of that highest score (COS-CVAE's "Oracle-20", "Oracle-100"), for
BLEU too, where it is the caption's own BLEU: `OracleResult.mean`. `OracleResult.corpus_bleu` is the
corpus BLEU of the chosen captions, chosen for each of BLEU-1 to BLEU-4 by the caption's own BLEU of
that n: it compares with the corpus BLEU of one caption an image, and is not a maximum, since each
choice is made alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from captioning.metrics.bleu import prepare_bleu, score_bleu
from captioning.metrics.cider import (
    ORDERS,
    VARIANTS,
    CaptionVectors,
    CiderReferences,
    CiderStatistics,
    Floats,
    Ints,
    NgramCounts,
    count_ngrams,
    number_images,
)
from captioning.metrics.coco import ALL_METRICS, BLEU, METRICS, MetricResult, hash_references
from captioning.metrics.java import JavaError
from captioning.metrics.meteor import score_meteor
from captioning.metrics.rouge import prepare_rouge, score_rouge
from captioning.metrics.spice import score_spice
from captioning.metrics.tokenizer import tokenize_ptb, tokenize_python

Tokenize = Callable[[Sequence[str]], list[str]]

_MAX_CAPTIONS, _MAX_CELLS = 20_000, 4_000_000  # of a block of images: some 200 MB
_SMALL, _TINY = 1e-9, 1e-15  # what keeps pycocoevalcap's BLEU from dividing by 0
T = TypeVar("T")


def evaluate_diversity(
    captions: Mapping[str, Sequence[str]],
    *,
    statistics: CiderStatistics,
    training_captions: Collection[str] | None = None,
    tokenize: Tokenize | None = tokenize_python,
    variant: str = "CIDEr-D",
) -> MetricResult:
    """Measure the diversity of several captions an image; see the module for the measures.

    Args:
        captions: at least two of each image, such as those of `select_best`.
        statistics: document frequencies for self-CIDEr; Wang and Chan use those of the training
            captions. Kept in the settings.
        training_captions: raw text, for the novelty, which is left out without them.
        tokenize: such as `tokenize_python` or `tokenize_ptb`; None if all captions are tokenized.
        variant: kernel of self-CIDEr: ``"CIDEr-D"`` as in the authors' code, ``"CIDEr"`` as in
            their paper. CIDEr-D is not quite symmetric between two captions if one repeats an
            n-gram; as in their code the earlier one is the candidate.

    Returns:
        Scores by measure; of single images too, but for ``mBLEU-4``.

    Raises:
        TypeError: captions of an image that are not a list of texts.
        ValueError: no images, one with fewer than two captions, or statistics of one image, by
            which every n-gram weighs nothing and every self-CIDEr would be 0.
    """
    check_texts(captions, "captions")
    if not captions or any(len(group) < 2 for group in captions.values()):
        too_few = [image_id for image_id, group in captions.items() if len(group) < 2]
        raise ValueError(f"diversity needs two captions or more of each image: got {too_few[:3]}")
    if statistics.num_images < 2:
        raise ValueError("self-CIDEr needs document frequencies of at least 2 images: got 1")
    flat = tokenized(list(chain.from_iterable(captions.values())), tokenize)
    rest = iter(flat)
    groups = [[next(rest) for _ in group] for group in captions.values()]
    columns = {"uniqueness": np.array([len(set(group)) / len(group) for group in groups])}
    totals: dict[str, float] = {}
    if training_captions is not None:
        known = frozenset(tokenized(list(training_captions), tokenize))
        novel = [[caption not in known for caption in group] for group in groups]
        columns["novelty"] = np.array([np.mean(group) for group in novel])
        totals["novel-sentences"] = float(sum(map(sum, novel)))
    measured, mutual_bleu = _measure(groups, statistics, variant)
    columns |= measured
    return MetricResult(
        corpus={name: float(values.mean()) for name, values in columns.items()}
        | {"mBLEU-4": mutual_bleu}
        | totals,
        per_image={
            image_id: {name: float(values[row]) for name, values in columns.items()}
            for row, image_id in enumerate(captions)
        },
        settings={
            "tokenizer": tokenizer_name(tokenize),
            "cider_statistics": statistics.settings(),
            "self_cider_kernel": variant,
            "num_images": len(captions),
            "num_captions": len(flat),
            "missing": {},
        },
    )


def select_best(
    captions: Mapping[str, Sequence[str]], scores: Mapping[str, Sequence[float]], *, k: int = 5
) -> dict[str, list[str]]:
    """The ``k`` captions of each image that score highest, best first; equal ones in their order.

    Papers measure diversity on the best 5 by the consensus score (`captioning.evaluation.rerank`).
    Repeated captions stay; an image of fewer captions keeps them all.

    Raises:
        ValueError: other images, or another number of scores than captions.
    """
    if captions.keys() != scores.keys() or k < 1:
        raise ValueError(f"k must be at least 1 and every image scored: got {k}, {len(scores)}")
    best = {}
    for image_id, group in captions.items():
        if len(scores[image_id]) != len(group):
            raise ValueError(
                f"image {image_id!r} must have a score for each of its {len(group)} captions"
            )
        order = np.argsort(-np.asarray(scores[image_id], dtype=np.float64), kind="stable")
        best[image_id] = [group[number] for number in order[:k]]
    return best


def check_texts(groups: Mapping[str, Sequence[str]], name: str) -> None:
    """Refuse a text where a list of texts should be: its letters would pass for captions.

    Raises:
        TypeError: the texts of an image are not a list, or not all text.
    """
    for image_id, texts in groups.items():
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"{name} of image {image_id!r} must be a list of texts: got {texts!r}")


def tokenized(captions: Sequence[str], tokenize: Tokenize | None) -> list[str]:
    """Captions through a tokenizer, or as they are."""
    return list(captions) if tokenize is None else tokenize(captions)


def tokenizer_name(tokenize: Tokenize | None) -> str:
    """Name of a tokenizer in settings: ``"python"``, ``"ptb"``, or ``"given"`` for None."""
    return "given" if tokenize is None else tokenize.__name__.removeprefix("tokenize_")


def self_cider(
    groups: Sequence[Sequence[str]], statistics: CiderStatistics, *, variant: str = "CIDEr-D"
) -> Floats:
    """Self-CIDEr of the tokenized captions of each image, ``(I,)`` in [0, 1]."""
    parts = [
        _self_cider(count_ngrams(list(chain.from_iterable(block))), block, statistics, variant)
        for block in _blocks(groups)
    ]
    return np.concatenate(parts)


def _self_cider(
    counts: NgramCounts, groups: Sequence[Sequence[str]], statistics: CiderStatistics, variant: str
) -> Floats:
    image = number_images(groups)
    vectors = CaptionVectors.build(counts, statistics)
    references = CiderReferences.choose(vectors, np.arange(len(image)), image, statistics)
    sizes = references.num_references
    kernel = np.zeros((len(sizes), sizes.max(), sizes.max()))
    kernel[image, _columns(sizes)] = references.similarities(vectors, image, variant)
    # "U": only K[i, j] with i <= j is read, as the authors compute no other; not all of a CIDEr-D
    # matrix's eigenvalues need be positive: its singular values, which they take, are
    roots = np.sqrt(np.abs(np.linalg.eigvalsh(kernel, UPLO="U")))
    total = roots.sum(1)
    ratio = np.divide(roots.max(1), total, out=np.ones(len(sizes)), where=total > 0)
    return -np.log(ratio) / np.log(sizes) + 0.0  # no negative zero


def _measure(
    groups: Sequence[Sequence[str]], statistics: CiderStatistics, variant: str
) -> tuple[dict[str, Floats], float]:
    """Scores of n-grams: columns by image, and the corpus mBLEU-4."""
    columns: dict[str, list[Floats]] = {"mBLEU-4-sentence": [], "self-CIDEr": []}
    columns |= {"Div-1": [], "Div-2": []}
    pooled: dict[int, Floats] = {}
    for block in _blocks(groups):
        counts, image = count_ngrams(list(chain.from_iterable(block))), number_images(block)
        sizes = np.bincount(image)
        parts = _bleu_parts(counts, image)
        columns["mBLEU-4-sentence"].append(np.bincount(image, _bleu(parts)) / sizes)
        for column in range(sizes.max()):
            total = parts[_columns(sizes) == column].sum(0)
            pooled[column] = pooled.get(column, 0) + total
        for n in (1, 2):
            columns[f"Div-{n}"].append(_distinct(counts, image, n))
        columns["self-CIDEr"].append(_self_cider(counts, block, statistics, variant))
    mutual_bleu = float(_bleu(np.stack(list(pooled.values()))).mean())
    return {name: np.concatenate(values) for name, values in columns.items()}, mutual_bleu


def _distinct(counts: NgramCounts, image: Ints, n: int) -> Floats:
    """Distinct n-grams of each image's captions over their words; 0 where there are no words."""
    size = max(1, int(counts.table.starts[-1]))
    pairs = np.sort((image[counts.caption] * size + counts.gram)[_of_order(counts) == n - 1])
    new = np.append(True, pairs[1:] != pairs[:-1])[: len(pairs)]
    distinct = np.bincount(pairs[new] // size, minlength=image[-1] + 1)
    return distinct / np.maximum(1, np.bincount(image, counts.num_words))


def _bleu_parts(counts: NgramCounts, image: Ints) -> Floats:
    """Counts for the BLEU of each caption against the others of its image, ``(B, 10)``.

    Matched n-grams and all n-grams for n = 1 to 4, words, and words of the reference that is
    closest in length, the shorter of two: the numbers that pycocoevalcap sums over a corpus.
    """
    size = max(1, int(counts.table.starts[-1]))
    key = image[counts.caption] * size + counts.gram
    order = np.lexsort((-counts.count, key))
    key, count = key[order], counts.count[order]
    first = np.append(True, key[1:] != key[:-1])[: len(key)]
    starts = np.flatnonzero(first)
    highest = np.repeat(count[starts], np.diff(np.append(starts, len(key))))
    following = np.append(np.where(first[1:], 0, count[1:]), 0)[: len(key)]
    # the caption with most of an n-gram is compared with the second, all others with the first
    matched = np.minimum(count, np.where(first, following, highest))
    cell = (counts.caption * ORDERS + _of_order(counts))[order]
    correct = np.bincount(cell, matched, len(image) * ORDERS).reshape(-1, ORDERS)
    num_ngrams = np.maximum(0, counts.num_words[:, None] - np.arange(ORDERS))
    columns = [correct, num_ngrams, counts.num_words, _closest(counts.num_words, image)]
    return np.column_stack(columns).astype(np.float64, copy=False)


def _closest(num_words: Ints, image: Ints) -> Ints:
    """Length of the other caption of the image that is closest in length, the shorter of two."""
    sizes = np.bincount(image)
    column = _columns(sizes)
    lengths = np.full((len(sizes), sizes.max()), -1)
    lengths[image, column] = num_words
    other_lengths = lengths[image]
    scale = int(num_words.max()) + 1
    cost = np.abs(other_lengths - num_words[:, None]) * scale + other_lengths
    cost[(other_lengths < 0) | (column[:, None] == np.arange(sizes.max()))] = scale * scale
    return cost.min(1) % scale


def _bleu(parts: Floats) -> Floats:
    """BLEU-4 from ``(..., 10)`` parts, as pycocoevalcap computes it, in [0, 1]."""
    precisions = (parts[..., :4] + _TINY) / (parts[..., 4:8] + _SMALL)
    ratio = (parts[..., 8] + _TINY) / (parts[..., 9] + _SMALL)
    return np.prod(precisions, axis=-1) ** 0.25 * np.exp(np.minimum(0, 1 - 1 / ratio))


def _of_order(counts: NgramCounts) -> Ints:
    return counts.table.orders()[counts.gram]


def _columns(sizes: Ints) -> Ints:
    """Which of its image's captions (0, 1, ...) each caption is."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _blocks(groups: Sequence[Sequence[str]]) -> list[Sequence[Sequence[str]]]:
    """Images in blocks whose arrays stay small."""
    max_captions = max(map(len, groups))
    step = max(1, min(_MAX_CAPTIONS // max_captions, _MAX_CELLS // max_captions**2))
    return [groups[start : start + step] for start in range(0, len(groups), step)]


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleResult:
    """Best-1 scores of several samples an image.

    Attributes:
        mean: mean over images of the highest score, by metric: the oracle of the papers.
        corpus_bleu: BLEU-1 to BLEU-4 of the whole set of captions chosen.
        per_image: ``{image_id: {name: highest score}}``.
        best: ``{image_id: {name: number of the sample}}``, the first of equal ones.
        settings: tokenizer, ``references_hash``, ``cider_statistics`` if CIDEr was requested,
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
        """For each caption, the entry of its image."""
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
        spice_folder: folder of SPICE's jars.
        timeout: seconds for each Java process.

    Returns:
        The scores; a metric that Java or its jars kept from being computed is in ``missing``.

    Raises:
        TypeError: candidates or references of an image that are not a list of texts.
        ValueError: no images, an image without candidates or references, or an unknown metric.
        JavaError: the tokenizer needs Java, which is missing.
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
