"""Boxes: which may replace which, and which show one thing alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from augmentation.regions import boxes
from augmentation.regions.boxes import Limits
from tests.augmentation.regions.scenes import region

corner = st.integers(0, 200)
any_box = st.tuples(corner, corner, corner, corner).map(lambda b: tuple(map(float, b)))


def test_the_defaults_are_the_papers():
    assert Limits() == Limits(
        smallest_area=1000,
        area_change=2.0,
        smallest_aspect=0.05,
        largest_aspect=5.0,
        aspect_change=0.3,
    )


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ((0, 0, 40, 40), ""),
        ((5, 5, 70, 74), ""),
        ((0, 0, 70, 70), boxes.AREA_CHANGES),
        ((0, 0, 23, 23), boxes.TOO_SMALL),
        ((0, 0, 46, 35), boxes.ASPECT_CHANGES),
        ((0, 0, 45, 35), ""),
        ((0, 0, 110, 20), boxes.ODD_ASPECT),
        ((0, 0, 1, 1), boxes.TOO_SMALL),
        ((40, 40, 0, 0), boxes.TOO_SMALL),
    ],
)
def test_why_a_box_may_not_replace_another(source, problem):
    limits = Limits(smallest_area=576 if problem != boxes.AREA_CHANGES else 0)
    assert limits.problem(source, (10, 10, 50, 50)) == problem


def test_too_much_is_three_times_the_area_either_way():
    small, large = (0, 0, 40, 40), (0, 0, 69.28, 69.28)
    assert Limits().problem(small, large) == Limits().problem(large, small) == ""
    larger = (0, 0, 69.3, 69.3)
    assert Limits().problem(small, larger) == boxes.AREA_CHANGES
    assert Limits().problem(larger, small) == boxes.AREA_CHANGES


@given(st.lists(any_box, min_size=1, max_size=5), st.lists(any_box, min_size=1, max_size=5))
def test_many_boxes_at_once_are_judged_as_one_by_one(sources, targets):
    limits = Limits(smallest_area=50)
    allowed = limits.allowed(sources, targets).tolist()
    assert allowed == [[limits.problem(s, t) == "" for s in sources] for t in targets]


@pytest.mark.parametrize("wrong", [{"area_change": -1}, {"smallest_aspect": 6}])
def test_limits_that_nothing_meets_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        Limits(**wrong)


def test_iou_and_clipping():
    assert boxes.iou((0, 0, 10, 10), (5, 0, 15, 10)) == pytest.approx(1 / 3)
    assert boxes.iou((0, 0, 1, 1), (2, 2, 3, 3)) == 0
    assert boxes.clipped((-5, 5, 20, 99), (10, 50)) == (0, 5, 10, 50)
    assert boxes.clipped((10, 0, 20, 5), (10, 10)) is None
    assert boxes.pixels((0.5, 1.0, 2.1, 3.0)) == (0, 1, 3, 3)


def test_doubles_of_a_label_go_the_less_certain_first():
    first, second = region("dog", 0, 0, 10, 10), region("dog", 0, 0, 10, 9.5)
    cat = region("cat", 0, 0, 10, 10)
    assert boxes.without_duplicates([first, second, cat], threshold=0.9) == (first, cat)
    assert boxes.without_duplicates([first, second], threshold=0.96) == (first, second)


def test_a_box_around_another_shows_more_than_one_thing():
    outer, inner, beside = (
        region("a", 0, 0, 9, 9),
        region("b", 1, 1, 9, 9),
        region("c", 5, 5, 12, 12),
    )
    assert boxes.without_containers([outer, inner, beside]) == (inner, beside)
