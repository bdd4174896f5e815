"""Diversity of several captions per image, and oracle scores of the best caption among them.

Names and definitions follow Mahajan and Roth (2020, tables on diversity) and Wang and Chan (2019).
All measures use n captions per image, n at least 2 and possibly different per image; all but the
number of novel sentences are fractions in [0, 1].

- ``uniqueness``: distinct captions of an image / its captions. Higher is more diverse.
- ``novelty``: share of captions that equal no training caption exactly; ``novel-sentences``
  is their number over all images, which papers report: for example 4,404 of 5,000 (the best 5
  captions of the 1,000 test images of the m-RNN split).
- ``mBLEU-4``: BLEU-4 of a caption against the others of its image; lower is more diverse. As in the
  papers' code, it is corpus BLEU over all images' first captions, all second captions and so
  on, averaged. ``mBLEU-4-sentence`` is the mean of each caption's own BLEU-4, which is 0 without
  a common 4-gram and therefore much lower.
- ``Div-1``, ``Div-2``: distinct unigrams (bigrams) of an image's captions / their words.
- ``self-CIDEr``: -log_n(r) for the n × n matrix K of CIDEr-D between an image's captions, with
  r the largest square root of K's eigenvalues divided by their sum. 0 if all captions are
  equal, 1 if no two share an n-gram; an empty caption adds nothing.

The score of a set is the mean over images, except for ``mBLEU-4`` and ``novel-sentences``.

`evaluate_oracle` selects, for each metric, the best-scoring of an image's n samples.
Papers report the mean of this score over images (COS-CVAE's "Oracle-20", "Oracle-100"), also for
BLEU, with the caption's own BLEU: `OracleResult.mean`. `OracleResult.corpus_bleu` is the
corpus BLEU of the selected captions, selected for each of BLEU-1 to BLEU-4 by the caption's own
BLEU of that n. It is comparable with the corpus BLEU of one caption per image, but is not a
maximum, because captions are selected independently.
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
    """Measure the diversity of several captions per image; see the module for the measures.

    Args:
        captions: at least two captions per image, such as those of `select_best`.
        statistics: document frequencies for self-CIDEr, stored in the settings; Wang and Chan use
            those of the training captions.
        training_captions: raw captions, required for the novelty.
        tokenize: tokenizer such as `tokenize_python`; None: captions are already tokenized.
        variant: kernel of self-CIDEr: ``"CIDEr-D"`` as in the authors' code, or ``"CIDEr"`` as in
            their paper. CIDEr-D is slightly asymmetric if a caption repeats an
            n-gram; as in their code the earlier caption is the candidate.

    Returns:
        Scores by measure; also per image, except ``mBLEU-4``.

    Raises:
        TypeError: captions of an image that are not a list of texts.
        ValueError: no images, an image with fewer than two captions, or statistics of one image,
            with which every self-CIDEr would be 0.
    """
    check_texts(captions, "captions")
    if not captions or any(len(group) < 2 for group in captions.values()):
        too_few = [image_id for image_id, group in captions.items() if len(group) < 2]
        raise ValueError(f"diversity needs at least two captions per image: got {too_few[:3]}")
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
    """Select the ``k`` best-scoring captions of each image, best first, with stable ties.

    Papers measure diversity on the best 5 by the consensus score (`captioning.evaluation.rerank`).
    Repeated captions are kept; an image with fewer captions keeps all.

    Raises:
        ValueError: images or numbers of scores do not match the captions.
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
    """Raise an error for a string instead of a list: its letters would count as captions.

    Raises:
        TypeError: the captions of an image are not a list of strings.
    """
    for image_id, texts in groups.items():
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"{name} of image {image_id!r} must be a list of texts: got {texts!r}")


def tokenized(captions: Sequence[str], tokenize: Tokenize | None) -> list[str]:
    """Tokenize captions; with None return them unchanged."""
    return list(captions) if tokenize is None else tokenize(captions)


def tokenizer_name(tokenize: Tokenize | None) -> str:
    """Return a tokenizer's name for settings: ``"python"``, ``"ptb"``, or ``"given"`` for None."""
    return "given" if tokenize is None else tokenize.__name__.removeprefix("tokenize_")


def self_cider(
    groups: Sequence[Sequence[str]], statistics: CiderStatistics, *, variant: str = "CIDEr-D"
) -> Floats:
    """Return the self-CIDEr of each image's tokenized captions, ``(I,)`` in [0, 1]."""
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
    # "U": only K[i, j] with i <= j is read, as in the authors' code. Not all eigenvalues of a
    # CIDEr-D matrix need be positive: its singular values, which the authors use, are
    roots = np.sqrt(np.abs(np.linalg.eigvalsh(kernel, UPLO="U")))
    total = roots.sum(1)
    ratio = np.divide(roots.max(1), total, out=np.ones(len(sizes)), where=total > 0)
    return -np.log(ratio) / np.log(sizes) + 0.0  # no negative zero


def _measure(
    groups: Sequence[Sequence[str]], statistics: CiderStatistics, variant: str
) -> tuple[dict[str, Floats], float]:
    """Return n-gram measures as columns by image, and the corpus mBLEU-4."""
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
    """Return distinct n-grams of each image's captions divided by their words; 0 without words."""
    size = max(1, int(counts.table.starts[-1]))
    pairs = np.sort((image[counts.caption] * size + counts.gram)[_of_order(counts) == n - 1])
    new = np.append(True, pairs[1:] != pairs[:-1])[: len(pairs)]
    distinct = np.bincount(pairs[new] // size, minlength=image[-1] + 1)
    return distinct / np.maximum(1, np.bincount(image, counts.num_words))


def _bleu_parts(counts: NgramCounts, image: Ints) -> Floats:
    """Return counts for BLEU of each caption against the others of its image, ``(B, 10)``.

    Columns: matched and total n-grams for n = 1 to 4, words, and words of the reference
    closest in length (the shorter on ties): the counts that pycocoevalcap sums over a corpus.
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
    """Return the length of the image's other caption closest in length, the shorter on ties."""
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
    """Return BLEU-4 from counts ``(..., 10)``, as pycocoevalcap computes it, in [0, 1]."""
    precisions = (parts[..., :4] + _TINY) / (parts[..., 4:8] + _SMALL)
    ratio = (parts[..., 8] + _TINY) / (parts[..., 9] + _SMALL)
    return np.prod(precisions, axis=-1) ** 0.25 * np.exp(np.minimum(0, 1 - 1 / ratio))


def _of_order(counts: NgramCounts) -> Ints:
    return counts.table.orders()[counts.gram]


def _columns(sizes: Ints) -> Ints:
    """Return each caption's index (0, 1, ...) within its image."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _blocks(groups: Sequence[Sequence[str]]) -> list[Sequence[Sequence[str]]]:
    """Split images into blocks, to keep arrays small."""
    max_captions = max(map(len, groups))
    step = max(1, min(_MAX_CAPTIONS // max_captions, _MAX_CELLS // max_captions**2))
    return [groups[start : start + step] for start in range(0, len(groups), step)]


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleResult:
    """Oracle scores: the best of several samples per image.

    Attributes:
        mean: mean over images of the highest score, by metric: the papers' oracle score.
        corpus_bleu: BLEU-1 to BLEU-4 of the selected captions as a corpus.
        per_image: ``{image_id: {name: highest score}}``.
        best: ``{image_id: {name: sample index}}``, the first on ties.
        settings: tokenizer, ``references_hash``, ``cider_statistics`` if CIDEr was requested,
            ``num_images``, ``num_samples`` (maximum per image) and ``missing``, as in
            `captioning.metrics.coco.MetricResult`.
    """

    mean: dict[str, float]
    corpus_bleu: dict[str, float]
    per_image: dict[str, dict[str, float]]
    best: dict[str, dict[str, int]]
    settings: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Samples:
    """Distinct tokenized captions of each image, grouped by image."""

    texts: list[str]
    image: Ints  # (P,) number of the image
    first: Ints  # (P,) number of the first sample with this text
    references: list[list[str]]  # of the images

    def of_each(self, values: Sequence[T]) -> list[T]:
        """Repeat each image's value for each of its captions."""
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
    """Score every sample of every image, and select the best.

    All texts are tokenized once; repeated captions of an image are scored once.

    Args:
        candidates: captions of each image, any number per image.
        references: captions of at least these images.
        metrics: some of `captioning.metrics.coco.ALL_METRICS`.
        tokenize: tokenizer such as `tokenize_ptb`; None: captions are already tokenized.
        statistics: document frequencies of CIDEr-D and CIDEr; default: those of the references.
        spice_folder: folder of SPICE's jar files.
        timeout: seconds for each Java process.

    Returns:
        The scores; metrics that failed for lack of Java or jar files are in ``missing``.

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
    """Return scores ``(P,)`` of the distinct captions by reported name."""
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
    """Return the corpus score of each of BLEU-1 to BLEU-4 for the captions that it selected."""
    prepared = prepare_bleu(samples.references)
    return {
        name: score_bleu([samples.texts[row] for row in best[name]], prepared)[0][order]
        for order, name in enumerate(BLEU)
    }


def _best(scores: Floats, image: Ints) -> Ints:
    """Return the row of each image's highest score, the first on ties, ``(I,)``."""
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
        raise ValueError("candidates must hold at least one image: got none")
    chosen = {image_id: references.get(image_id, ()) for image_id in candidates}
    for name, groups in (("candidates", candidates), ("references", chosen)):
        check_texts(groups, name)
        empty = [image_id for image_id, group in groups.items() if not group]
        if empty:
            raise ValueError(
                f"{name} of image {empty[0]!r} must be a list of at least one caption: got none"
            )
