from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioning.metrics.detection import area_under_roc, precision_at, precision_at_noise_rate

scored = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=30)


@given(scored)
def test_area_is_the_share_of_pairs_in_order(pairs: list[tuple[int, bool]]) -> None:
    faults = [score for score, is_fault in pairs if is_fault]
    sound = [score for score, is_fault in pairs if not is_fault]
    area = area_under_roc([score for score, _ in pairs], [fault for _, fault in pairs])
    if not faults or not sound:
        assert np.isnan(area)
        return
    wins = sum((f > s) + (f == s) / 2 for f in faults for s in sound)
    assert area == pytest.approx(wins / (len(faults) * len(sound)))


def test_precision_is_the_mean_over_orders_of_the_tied() -> None:
    scores, faults = [3, 2, 2, 2, 1], [True, True, False, False, True]
    for k in range(1, 6):
        found = [
            np.mean([faults[i] for i in sorted(order, key=lambda i: -scores[i])[:k]])
            for order in permutations(range(5))
        ]
        assert precision_at(scores, faults, k) == pytest.approx(np.mean(found))


def test_precision_at_noise_rate_takes_as_many_as_there_are_faults() -> None:
    assert precision_at_noise_rate([9, 8, 7, 1], [True, False, True, False]) == 0.5
    assert precision_at_noise_rate([9, 1, 8, 0], [True, False, True, False]) == 1.0
    assert np.isnan(precision_at_noise_rate([1, 2], [False, False]))


@pytest.mark.parametrize(
    ("scores", "faults", "message"),
    [
        ([], [], "N > 0"),
        ([1, 2], [True], r"got \(2,\) and \(1,\)"),
        ([1, 2], [1, 0], "must be bool"),
        ([1, float("nan")], [True, False], "1 are not"),
    ],
)
def test_bad_input_is_named(scores: list, faults: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        area_under_roc(scores, faults)


@pytest.mark.parametrize("k", [0, 3])
def test_k_outside_the_set_is_named(k: int) -> None:
    with pytest.raises(ValueError, match=r"k must be in \[1, 2\]"):
        precision_at([1, 2], [True, False], k)
