"""From detections to constraints."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captioning.decoding.detections import detection_constraints, suppress_overlaps
from captioning.types import Region

PARENTS = {"dog": "mammal", "cat": "mammal", "mammal": "animal", "fish": "animal", "lamp": "thing"}
HERE, THERE = (0.0, 0.0, 10.0, 10.0), (20.0, 0.0, 30.0, 10.0)


def region(label: str, score: float = 0.5, box: tuple[float, ...] = HERE) -> Region:
    return Region(box=box, label=label, score=score)


def labels(regions: list[Region]) -> list[str]:
    return [item.label for item in regions]


def test_the_lower_class_of_overlapping_regions_is_kept():
    detections = [region("animal", 0.9), region("dog", 0.3), region("mammal", 0.8)]
    assert labels(suppress_overlaps(detections, parents=PARENTS)) == ["dog"]


def test_classes_without_children_are_equally_low_and_scores_decide():
    # A lamp is one step below the root, a dog two: neither is more exact than the other.
    detections = [region("dog", 0.3), region("lamp", 0.4)]
    assert labels(suppress_overlaps(detections, parents=PARENTS)) == ["lamp"]
    detections = [region("dog", 0.3), region("unheard of", 0.4)]
    assert labels(suppress_overlaps(detections, parents=PARENTS)) == ["unheard of"]


def test_regions_apart_are_all_kept():
    detections = [region("animal", 0.9), region("dog", 0.3, THERE)]
    assert labels(suppress_overlaps(detections, parents=PARENTS)) == ["dog", "animal"]


@pytest.mark.parametrize(("right", "num_remaining"), [(8.5, 2), (8.6, 1)])
def test_overlap_is_more_than_the_share(right, num_remaining):
    # The second box is a part of the first: intersection over union is right / 10.
    detections = [region("dog", 0.9), region("cat", 0.8, (0.0, 0.0, right, 10.0))]
    assert len(suppress_overlaps(detections)) == num_remaining


def test_a_suppressed_region_suppresses_nothing():
    # The middle box overlaps both others, which do not overlap each other.
    boxes = [(0.0, 0.0, 10.0, 10.0), (0.0, 0.0, 9.0, 10.0), (0.0, 0.0, 8.0, 10.0)]
    scored = zip(("a", "b", "c"), (0.9, 0.8, 0.7), boxes, strict=True)
    assert labels(suppress_overlaps([region(*values) for values in scored])) == ["a", "c"]


def test_the_surest_distinct_labels_are_taken():
    places = [(30.0 * n, 0.0, 30.0 * n + 10, 10.0) for n in range(6)]
    names = ["dog", "dog", "face", "cat", "lamp", "car"]
    scores = [0.9, 0.8, 0.95, 0.5, 0.7, 0.6]
    detections = [region(*values) for values in zip(names, scores, places, strict=True)]
    assert detection_constraints(detections, blacklist={"face"}) == [("dog",), ("lamp",), ("car",)]
    assert detection_constraints(detections, max_constraints=1) == [("face",)]


def test_the_surest_regions_may_be_counted_before_equal_labels_are_joined():
    places = [(30.0 * n, 0.0, 30.0 * n + 10, 10.0) for n in range(4)]
    scored = zip(("zebra", "zebra", "zebra", "tree"), (0.9, 0.8, 0.7, 0.6), places, strict=True)
    detections = [region(*values) for values in scored]
    assert detection_constraints(detections) == [("zebra",), ("tree",)]
    assert detection_constraints(detections, counted="regions") == [("zebra",)]
    assert detection_constraints(detections, counted="regions", max_constraints=0) == []


def test_a_blacklisted_label_suppresses_nothing():
    detections = [region("face", 0.9), region("dog", 0.2)]
    assert detection_constraints(detections, blacklist={"face"}) == [("dog",)]


def test_renaming_comes_after_the_hierarchy_and_joins_labels():
    detections = [region("animal", 0.9), region("dog", 0.5), region("cat", 0.4, THERE)]
    renames = {"dog": "pet", "cat": "pet", "animal": "beast"}
    assert detection_constraints(detections, renames=renames, parents=PARENTS) == [("pet",)]


def test_forms_come_by_mapping_or_function():
    detections = [region("hound")]
    renames = {"hound": "dog"}
    by_mapping = detection_constraints(detections, renames=renames, forms={"dog": ["dogs", "dog"]})
    by_function = detection_constraints(
        detections, renames=renames, forms=lambda word: [word + "s"]
    )
    assert by_mapping == by_function == [("dog", "dogs")]
    assert detection_constraints(detections, forms={"dog": ["dogs"]}) == [("hound",)]


regions = st.lists(
    st.builds(
        region,
        st.sampled_from([*PARENTS, "animal", "thing"]),
        st.sampled_from([0.25, 0.5, 0.75]),
        st.sampled_from([HERE, THERE, (0.0, 0.0, 9.5, 10.0), (0.0, 0.0, 10.0, 9.0)]),
    ),
    max_size=8,
)


@given(regions=regions, data=st.data())
@settings(max_examples=40)
def test_the_order_of_detections_does_not_matter(regions, data):
    shuffled = data.draw(st.permutations(regions))
    assert suppress_overlaps(shuffled, parents=PARENTS) == suppress_overlaps(
        regions, parents=PARENTS
    )
    assert detection_constraints(shuffled, parents=PARENTS) == detection_constraints(
        regions, parents=PARENTS
    )


def test_equal_scores_go_by_label_then_by_box():
    detections = [region("dog", 0.5, THERE), region("dog", 0.5, HERE), region("cat", 0.5, THERE)]
    assert suppress_overlaps(detections) == [detections[2], detections[1]]


def test_no_detections_give_no_constraints():
    assert detection_constraints([]) == []


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match=r"counted must be one of .* got 'boxes'"):
        detection_constraints([], counted="boxes")
    with pytest.raises(ValueError, match=r"not have cycles: got b -> c -> b"):
        suppress_overlaps([], parents={"a": "b", "b": "c", "c": "b"})
    with pytest.raises(ValueError, match=r"max_overlap must be in \[0, 1\]: got 85"):
        suppress_overlaps([], max_overlap=85)
    with pytest.raises(ValueError, match="max_constraints must be at least 0: got -1"):
        detection_constraints([], max_constraints=-1)
