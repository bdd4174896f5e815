"""BLEU-1 to BLEU-4 (Papineni et al., 2002) with references counted once.

The scores equal pycocoevalcap's ``Bleu(4)`` with ``option="closest"``: the corpus score uses
summed counts, and an image's score is smoothed with tiny constants so that it is always defined.
References are counted once and used for every epoch's captions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

import numpy as np
from numpy.typing import NDArray

MAX_ORDER = 4
# pycocoevalcap's constants: they keep an empty caption's score at 0 instead of undefined.
_TINY, _SMALL = 1e-15, 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class BleuReferences:
    """References of one image, with counted n-grams.

    Attributes:
        counts: for every n-gram its maximum count in one reference.
        lengths: number of words of each reference.
    """

    counts: Counter[tuple[str, ...]]
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """Counts that BLEU needs, for n-grams of 1 to 4 words."""

    length: int
    closest: int
    num_ngrams: tuple[int, ...]
    num_matched: tuple[int, ...]


def prepare_bleu(references: Sequence[Sequence[str]]) -> list[BleuReferences]:
    """Count the n-grams of tokenized references once, for many evaluations."""
    return [_count_references(captions) for captions in references]


def score_bleu(
    candidates: Sequence[str], references: Sequence[BleuReferences]
) -> tuple[list[float], list[list[float]]]:
    """Compute BLEU-1 to BLEU-4 of tokenized captions.

    Args:
        candidates: one caption per image.
        references: references of the same images in the same order.

    Returns:
        Four corpus scores, and four lists with one score per image, all in [0, 1].
    """
    counts = [_compare(*pair) for pair in zip(candidates, references, strict=True)]
    per_image = [_bleu(image_counts) for image_counts in counts]
    total = _Counts(
        length=sum(image_counts.length for image_counts in counts),
        closest=sum(image_counts.closest for image_counts in counts),
        num_ngrams=_column_sums([image_counts.num_ngrams for image_counts in counts]),
        num_matched=_column_sums([image_counts.num_matched for image_counts in counts]),
    )
    return _bleu(total), [list(column) for column in zip(*per_image, strict=True)]


def count_bleu(
    candidates: Sequence[str], references: Sequence[BleuReferences]
) -> NDArray[np.int64]:
    """Return each image's counts for corpus BLEU, ``(I, 10)``.

    Columns: length, closest reference length, n-grams of 1 to 4 words, and matched n-grams.
    """
    counts = [_compare(*pair) for pair in zip(candidates, references, strict=True)]
    rows = [(c.length, c.closest, *c.num_ngrams, *c.num_matched) for c in counts]
    return np.array(rows, dtype=np.int64).reshape(len(rows), 2 + 2 * MAX_ORDER)


def pooled_bleu(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return BLEU-1 to BLEU-4 ``(R, 4)`` of R sets of captions from summed counts ``(R, 10)``."""
    length, closest = sums[:, :1], sums[:, 1:2]
    precisions = (sums[:, 2 + MAX_ORDER :] + _TINY) / (sums[:, 2 : 2 + MAX_ORDER] + _SMALL)
    scores = np.cumprod(precisions, axis=1) ** (1 / np.arange(1, MAX_ORDER + 1))
    ratio = (length + _TINY) / (closest + _SMALL)
    return scores * np.exp(np.minimum(0, 1 - 1 / ratio))


def _ngrams(words: Sequence[str]) -> Counter[tuple[str, ...]]:
    counts: Counter[tuple[str, ...]] = Counter()
    for order in range(1, MAX_ORDER + 1):
        counts.update(zip(*(words[start:] for start in range(order)), strict=False))
    return counts


def _count_references(captions: Sequence[str]) -> BleuReferences:
    counts: Counter[tuple[str, ...]] = Counter()
    lengths = []
    for caption in captions:
        words = caption.split()
        lengths.append(len(words))
        counts |= _ngrams(words)
    return BleuReferences(counts=counts, lengths=tuple(lengths))


def _compare(candidate: str, references: BleuReferences) -> _Counts:
    words = candidate.split()
    num_matched = [0] * MAX_ORDER
    known = references.counts
    for ngram, count in _ngrams(words).items():
        if ngram in known:
            num_matched[len(ngram) - 1] += min(count, known[ngram])
    length = len(words)
    return _Counts(
        length=length,
        closest=min((abs(other - length), other) for other in references.lengths)[1],
        num_ngrams=tuple(max(0, length - order) for order in range(MAX_ORDER)),
        num_matched=tuple(num_matched),
    )


def _bleu(counts: _Counts) -> list[float]:
    precisions = (
        (num_matched + _TINY) / (num_ngrams + _SMALL)
        for num_matched, num_ngrams in zip(counts.num_matched, counts.num_ngrams, strict=True)
    )
    scores = [
        product ** (1.0 / order) for order, product in enumerate(accumulate(precisions, mul), 1)
    ]
    ratio = (counts.length + _TINY) / (counts.closest + _SMALL)
    if ratio < 1:
        penalty = math.exp(1 - 1 / ratio)
        scores = [score * penalty for score in scores]
    return scores


def _column_sums(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip(*rows, strict=True))
