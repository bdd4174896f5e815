"""Noun IoU, Hal and missing nouns by hand, and the matching against all permutations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from captioning.interfaces import AbstractWordVectors
from captioning.metrics.noun_overlap import find_nouns, match_best, score_nouns
from captioning.types import Token

# cos(dog, puppy) = .6, cos(dog, cat) = 0, cos(cat, puppy) = .8, cos(dog, sky) = -1
PLANE = {"dog": (1, 0), "puppy": (0.6, 0.8), "cat": (0, 1), "sky": (-1, 0)}


class PlaneVectors(AbstractWordVectors):
    """Four words in a plane; all others have no vector."""

    name = "plane"

    def vectors(self, words: Sequence[str]) -> Tensor:
        return torch.tensor([PLANE.get(word, (0, 0)) for word in words]).float().reshape(-1, 2)


def scores(mentioned: list[str], requested: list[str]) -> tuple[float, float, float]:
    scores_of_nouns = score_nouns([mentioned], [requested], PlaneVectors())
    return (
        float(scores_of_nouns.iou[0]),
        float(scores_of_nouns.hallucination[0]),
        float(scores_of_nouns.missing[0]),
    )


def test_one_noun_for_another() -> None:
    # (cos + 1) / 2 = .8: intersection .8, union 1.2
    assert scores(["puppy"], ["dog"]) == pytest.approx((0.8 / 1.2, 0.2, 0.2))


def test_the_best_matching_is_not_the_greedy_one() -> None:
    # puppy is nearest to cat (.9), but puppy-dog .8 and cat-cat 1 give more than .9 and .5
    assert scores(["puppy", "cat"], ["cat", "dog"]) == pytest.approx((1.8 / 2.2, 0.1, 0.1))


def test_opposite_nouns_share_nothing() -> None:
    assert scores(["sky"], ["dog"]) == pytest.approx((0.0, 1.0, 1.0))


def test_a_noun_too_many_is_hallucinated_and_one_too_few_is_missing() -> None:
    assert scores(["dog", "cat"], ["dog"]) == pytest.approx((1 / 2, 1 / 2, 0.0))
    assert scores(["dog"], ["dog", "cat"]) == pytest.approx((1 / 2, 0.0, 1 / 2))


@pytest.mark.parametrize(
    ("mentioned", "requested", "expected"),
    [
        ([], [], (1.0, 0.0, 0.0)),
        ([], ["dog"], (0.0, 0.0, 1.0)),
        (["dog"], [], (0.0, 1.0, 0.0)),
        (["zyx"], ["dog"], (0.0, 0.0, 1.0)),
    ],
    ids=["nothing asked or said", "nothing said", "nothing asked", "no vector"],
)
def test_empty_sets(
    mentioned: list[str], requested: list[str], expected: tuple[float, ...]
) -> None:
    assert scores(mentioned, requested) == expected


def test_nouns_count_once_in_lower_case_and_names_word_by_word() -> None:
    assert scores(["Dog", "dog", "cat"], ["dog cat"]) == pytest.approx((1.0, 0.0, 0.0))


def test_what_has_no_vector_is_left_out_and_listed() -> None:
    scores_of_nouns = score_nouns([["dog", "zyx"], ["abc"]], [["dog"], ["cat"]], PlaneVectors())
    assert scores_of_nouns.iou[0] == pytest.approx(1.0)
    assert scores_of_nouns.unknown == ("abc", "zyx")


NOUNS = st.lists(st.sampled_from([*PLANE, "zyx"]), max_size=4)


@given(st.lists(st.tuples(NOUNS, NOUNS), min_size=1, max_size=5), st.randoms())
def test_scores_lie_in_the_unit_interval_and_belong_to_their_caption(pairs, draw) -> None:
    def columns(rows):
        scores_of_nouns = score_nouns(
            [row[0] for row in rows], [row[1] for row in rows], PlaneVectors()
        )
        return np.stack(
            [scores_of_nouns.iou, scores_of_nouns.hallucination, scores_of_nouns.missing]
        )

    order = list(range(len(pairs)))
    draw.shuffle(order)
    together = columns(pairs)
    assert (together >= 0).all()
    assert (together <= 1).all()
    assert np.allclose(columns([pairs[i] for i in order]), together[:, order])
    assert np.allclose(columns(pairs * 2), np.concatenate([together, together], axis=1))
    swapped = columns([(requested, mentioned) for mentioned, requested in pairs])
    assert np.allclose(swapped[0], together[0])  # IoU is symmetric, Hal and missing change places


@given(NOUNS)
def test_saying_what_is_asked_is_perfect(nouns: list[str]) -> None:
    assert scores(nouns, nouns) == pytest.approx((1.0, 0.0, 0.0))


def test_bad_input() -> None:
    with pytest.raises(
        ValueError, match="each caption needs one control signal: got 1 signals for 2"
    ):
        score_nouns([["dog"], ["cat"]], [["dog"]], PlaneVectors())
    with pytest.raises(ValueError, match="nouns must be a list, not a string: got 'dog'"):
        score_nouns(["dog"], [["dog"]], PlaneVectors())


VALUES = st.one_of(st.integers(-2, 2).map(float), st.floats(-1, 1))  # with many ties


@given(
    st.tuples(st.integers(1, 5), st.integers(1, 5)).flatmap(
        lambda shape: arrays(np.float64, shape, elements=VALUES)
    )
)
def test_the_matching_is_the_best_of_all(gain: np.ndarray) -> None:
    matches = match_best(gain)
    rows, columns = zip(*matches, strict=True)
    size = min(gain.shape)
    assert len(matches) == len(set(rows)) == len(set(columns)) == size
    wide = gain if gain.shape[0] <= gain.shape[1] else gain.T
    best = max(
        sum(wide[row, column] for row, column in enumerate(chosen))
        for chosen in permutations(range(wide.shape[1]), size)
    )
    assert sum(gain[pair] for pair in matches) == pytest.approx(best)


def test_nouns_of_a_parse() -> None:
    words = [("Two", "CD"), ("Men", "NNS"), ("walk", "VB"), ("Rex", "NNP"), ("Men", "NNS")]
    lemmas = {"Men": "man"}
    parse = tuple(
        Token(text=t, lemma=lemmas.get(t, t.lower()), pos="X", tag=tag, dep="dep", head=0)
        for t, tag in words
    )
    assert find_nouns(parse) == ("men", "rex")
    assert find_nouns(parse, lemmas=True) == ("man", "rex")
    assert find_nouns(()) == ()
