"""Agreement of a caption's nouns with the requested nouns (CIC-BART-SSA, C.1).

N is the set of nouns of a caption, E the set of nouns of the control signal. The similarity of two
nouns is ``(cos + 1) / 2`` of their word vectors; the *intersection* of N and E is the maximum sum
of similarities over one-to-one matchings (Hungarian matching). Then

- noun IoU = intersection / (|N| + |E| − intersection);
- Hal = (|N| − intersection) / |N|, Eq. 1. The paper writes IoU(N, E) in place of the intersection;
  its code uses the intersection, and only so can a model have both IoU 55.0 and Hal 34.1;
- missing = (|E| − intersection) / |E|, from the authors' code: nouns requested but not mentioned.

As in that code a noun counts once, as written and in lower case, and nouns without a word
vector are ignored. If both sets are empty: IoU 1, Hal 0, missing 0. If no noun is mentioned:
IoU 0, Hal 0, missing 1. If none is requested: IoU 0, Hal 1, missing 0.

Two unrelated nouns have a similarity of about .5, so no score comes near its worst value: the
scores rank models but do not count errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from captioning.interfaces import AbstractWordVectors
from captioning.types import Parse

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class NounScores:
    """Agreement of the nouns of n captions with the requested nouns.

    Attributes:
        iou: ``(n,)`` in [0, 1], higher is better.
        hallucination: ``(n,)`` Hal in [0, 1], lower is better.
        missing: ``(n,)`` in [0, 1], lower is better.
        unknown: nouns without a word vector, which are ignored, in alphabetical order.
    """

    iou: Floats
    hallucination: Floats
    missing: Floats
    unknown: tuple[str, ...]


def find_nouns(parse: Parse, *, lemmas: bool = False) -> tuple[str, ...]:
    """Return the distinct nouns of a caption (tags ``NN...``) in lower case, in order.

    Args:
        parse: parse of the caption.
        lemmas: return dictionary forms, so that "dogs" equals "dog". Published scores use the words
            as written.
    """
    nouns = [token for token in parse if token.tag.startswith("NN")]
    return tuple(dict.fromkeys((token.lemma if lemmas else token.text).lower() for token in nouns))


def score_nouns(
    mentioned: Sequence[Sequence[str]],
    requested: Sequence[Sequence[str]],
    vectors: AbstractWordVectors,
) -> NounScores:
    """Compute noun IoU, Hal and missing nouns of captions; see the module.

    Args:
        mentioned: nouns of each caption, such as from `find_nouns`.
        requested: nouns of each control signal. A name of several words counts as several nouns,
            as in a caption.
        vectors: word vectors for the similarity.

    Raises:
        ValueError: numbers of captions and control signals differ, or a string is no list.
    """
    if len(mentioned) != len(requested):
        raise ValueError(
            f"each caption needs one control signal: got {len(requested)} signals for "
            f"{len(mentioned)} captions"
        )
    pairs = [(_words(own), _words(other)) for own, other in zip(mentioned, requested, strict=True)]
    words = sorted(set(chain.from_iterable(chain.from_iterable(pairs))))
    table = vectors.vectors(words).double().numpy()
    row = {word: number for number, word in enumerate(words) if table[number].any()}
    scores = np.zeros((len(pairs), 3))
    for number, (own, other) in enumerate(pairs):
        rows = [[row[word] for word in group if word in row] for group in (own, other)]
        scores[number] = _score((table[rows[0]] @ table[rows[1]].T + 1) / 2)
    return NounScores(
        iou=scores[:, 0],
        hallucination=scores[:, 1],
        missing=scores[:, 2],
        unknown=tuple(word for word in words if word not in row),
    )


def _words(nouns: Sequence[str]) -> list[str]:
    """Return distinct single words, in order."""
    if isinstance(nouns, str):
        raise ValueError(f"nouns must be a list, not a string: got {nouns!r}")
    return list(dict.fromkeys(chain.from_iterable(noun.lower().split() for noun in nouns)))


def _score(similarity: Floats) -> tuple[float, float, float]:
    """Return IoU, Hal and missing for similarities ``(|N|, |E|)``."""
    num_mentioned, num_requested = similarity.shape
    if not num_mentioned or not num_requested:
        return (
            float(num_mentioned == num_requested),
            float(num_mentioned > 0),
            float(num_requested > 0),
        )
    matches = match_best(similarity)
    # rounding may lift the similarity of a word with itself above 1
    common = min(sum(float(similarity[pair]) for pair in matches), num_mentioned, num_requested)
    return (
        common / (num_mentioned + num_requested - common),
        (num_mentioned - common) / num_mentioned,
        (num_requested - common) / num_requested,
    )


def match_best(gain: Floats) -> list[tuple[int, int]]:
    """Return the one-to-one matching of rows and columns with the greatest total gain.

    Kuhn's Hungarian method with shortest augmenting paths: rows join one by one, each by the
    cheapest chain of exchanges that frees a column, at costs reduced by row and column prices.

    Args:
        gain: ``(m, n)``, finite.

    Returns:
        ``min(m, n)`` (row, column) pairs, ordered by row.
    """
    if gain.shape[0] > gain.shape[1]:
        return sorted((row, column) for column, row in match_best(gain.T))
    cost = (-gain).tolist()  # lists: matrices are so small that array calls would cost more
    row_prices, column_prices = [0.0] * gain.shape[0], [0.0] * gain.shape[1]
    owners: list[int | None] = [None] * gain.shape[1]
    for row in range(len(cost)):
        _join(row, cost, row_prices, column_prices, owners)
    return sorted((row, column) for column, row in enumerate(owners) if row is not None)


def _join(
    new_row: int,
    cost: list[list[float]],
    row_prices: list[float],
    column_prices: list[float],
    owners: list[int | None],
) -> None:
    """Assign a column to one more row; changes prices and owners in place."""
    distance = [math.inf] * len(owners)
    predecessor: list[int | None] = [None] * len(owners)  # column that the path comes from
    settled: list[int] = []
    row, column, reached = new_row, -1, 0.0
    while row is not None:
        unsettled = [number for number in range(len(owners)) if number not in settled]
        for number in unsettled:
            step = reached + cost[row][number] - row_prices[row] - column_prices[number]
            if step < distance[number]:
                distance[number], predecessor[number] = step, column if settled else None
        column = min(unsettled, key=distance.__getitem__)
        reached = distance[column]
        settled.append(column)
        row = owners[column]
    row_prices[new_row] += reached
    for number in settled[:-1]:  # the free column at the path's end keeps its price
        owner = owners[number]
        if owner is not None:
            row_prices[owner] += reached - distance[number]
        column_prices[number] -= reached - distance[number]
    while (previous := predecessor[column]) is not None:
        owners[column] = owners[previous]
        column = previous
    owners[column] = new_row
