from __future__ import annotations

import json
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioning.metrics.detection import (
    area_under_roc,
    detect_kinds,
    precision_at,
    precision_at_noise_rate,
)

NAN = float("nan")
KINDS = st.sampled_from(["", "swap", "word", "image"])
rated = st.lists(st.tuples(st.integers(0, 3) | st.just(NAN), KINDS), min_size=1, max_size=25)
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
        precisions = [
            np.mean([faults[i] for i in sorted(order, key=lambda i: -scores[i])[:k]])
            for order in permutations(range(5))
        ]
        assert precision_at(scores, faults, k) == pytest.approx(np.mean(precisions))


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


def test_kinds_by_hand() -> None:
    # sorted: 9 swap, 8 sound, 7 word, 7 sound, 1 swap; the last row was never seen
    result = detect_kinds([7, 9, 8, 7, 1, NAN], {0: "word", 1: "swap", 4: "swap", 5: "image"})
    assert (result.num_samples, result.num_unseen, result.num_faults) == (5, 1, 3)
    assert result.auc == pytest.approx((2 + 0.5 + 0) / 6)
    assert result.precision_at_noise_rate == pytest.approx((1 + 0.5) / 3)
    swap, word, image = (result.by_kind[kind] for kind in ("swap", "word", "image"))
    assert list(result.by_kind) == ["image", "swap", "word"]
    assert (swap.num_faults, swap.auc, swap.precision_at_noise_rate) == (2, 0.5, 0.5)
    assert (word.num_faults, word.auc, word.precision_at_noise_rate) == (1, 0.25, 0)
    assert (swap.recall_at_noise_rate, word.recall_at_noise_rate) == (0.5, 0.5)
    assert image.num_faults == 0
    assert np.isnan([image.auc, image.precision_at_noise_rate, image.recall_at_noise_rate]).all()


@given(rated)
def test_each_kind_is_scored_against_the_sound_alone(pairs: list[tuple[float, str]]) -> None:
    scores = [score for score, _ in pairs]
    kinds = {row: kind for row, (_, kind) in enumerate(pairs) if kind}
    if np.isnan(scores).all():
        return
    result = detect_kinds(scores, kinds)
    seen = [(score, kind) for score, kind in pairs if not np.isnan(score)]
    for name, kind in result.by_kind.items():
        alone = [(score, other == name) for score, other in seen if other in ("", name)]
        assert kind.num_faults == sum(is_fault for _, is_fault in alone)
        if kind.num_faults:
            values, truth = zip(*alone, strict=True)
            assert kind.auc == pytest.approx(area_under_roc(values, truth), nan_ok=True)
            assert kind.precision_at_noise_rate == precision_at_noise_rate(values, truth)
    assert result.num_faults == sum(kind.num_faults for kind in result.by_kind.values())


@given(rated)
def test_recalls_of_the_kinds_make_up_the_precision(pairs: list[tuple[float, str]]) -> None:
    kinds = {row: kind for row, (_, kind) in enumerate(pairs) if kind}
    if np.isnan([score for score, _ in pairs]).all():
        return
    result = detect_kinds([score for score, _ in pairs], kinds)
    if not result.num_faults:
        assert np.isnan(result.precision_at_noise_rate)
        return
    kinds_found = [kind for kind in result.by_kind.values() if kind.num_faults]
    hits = sum(kind.recall_at_noise_rate * kind.num_faults for kind in kinds_found)
    assert hits / result.num_faults == pytest.approx(result.precision_at_noise_rate)


@given(rated, st.randoms(use_true_random=False))
def test_order_of_samples_changes_no_detection(pairs: list[tuple[float, str]], dice) -> None:
    if np.isnan([score for score, _ in pairs]).all():
        return
    shuffled = list(pairs)
    dice.shuffle(shuffled)
    first, second = (
        detect_kinds(
            [score for score, _ in order],
            {row: kind for row, (_, kind) in enumerate(order) if kind},
        ).to_dict()
        for order in (pairs, shuffled)
    )
    assert first == second


def test_perfect_and_worst_scores_of_kinds() -> None:
    kinds = {0: "swap", 1: "word"}
    for sign, expected in ((1, 1.0), (-1, 0.0)):
        result = detect_kinds([sign * 5, sign * 4, 0, 0, 0], kinds)
        assert result.auc == result.precision_at_noise_rate == expected
        for kind in result.by_kind.values():
            values = (kind.auc, kind.precision_at_noise_rate, kind.recall_at_noise_rate)
            assert values == (expected,) * 3


def test_samples_given_twice_change_nothing() -> None:
    scores, kinds = [7, 9, 8, 7, 1, NAN], {0: "word", 1: "swap", 4: "swap", 5: "image"}
    twice = detect_kinds(scores * 2, kinds | {row + 6: kind for row, kind in kinds.items()})
    once = detect_kinds(scores, kinds)
    assert (twice.auc, twice.precision_at_noise_rate) == pytest.approx(
        (once.auc, once.precision_at_noise_rate)
    )
    for kind in ("swap", "word"):
        assert twice.by_kind[kind].num_faults == 2 * once.by_kind[kind].num_faults
        assert twice.by_kind[kind].auc == pytest.approx(once.by_kind[kind].auc)


def test_equal_scores_find_no_more_than_chance() -> None:
    result = detect_kinds([2.0] * 10, {0: "swap", 3: "swap", 5: "word"})
    assert (result.auc, result.precision_at_noise_rate) == (0.5, pytest.approx(0.3))
    assert result.by_kind["swap"].precision_at_noise_rate == pytest.approx(2 / 9)
    assert result.by_kind["word"].recall_at_noise_rate == pytest.approx(0.3)


def test_one_sample_is_undefined_and_plain_in_json() -> None:
    plain = detect_kinds([1.0], {0: "swap"}).to_dict()
    assert (plain["auc"], plain["precision_at_noise_rate"]) == (None, 1.0)
    assert plain["by_kind"]["swap"]["auc"] is None
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


@pytest.mark.parametrize(
    ("scores", "kinds", "message"),
    [
        ([[1, 2]], {}, r"got \(1, 2\)"),
        ([NAN, NAN], {}, "2 of them NaN"),
        ([], {}, "at least one"),
        ([1, float("inf")], {}, "must be finite"),
        ([1, 2], {2: "swap"}, r"rows in \[0, 2\): got row 2"),
        ([1, 2], {-1: "swap"}, "got row -1"),
        ([1, 2], {"a#1": "swap"}, "row numbers as keys: got 'a#1'"),
        ([1, 2], {0: ""}, "must be a name"),
    ],
)
def test_bad_kinds_are_named(scores: list, kinds: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        detect_kinds(scores, kinds)
