"""What a detector finds before and after pasting, counted."""

from __future__ import annotations

from augmentation.regions.captioned import compare_detections, detection_shares
from tests.augmentation.regions.scenes import region

PLACE = (10.0, 10.0, 50.0, 50.0)
CAT, TREE, EAR = (
    region("cat", *PLACE),
    region("tree", 60, 10, 90, 90),
    region("ear", 12, 12, 20, 20),
)


def counts(*after, before=(CAT, TREE, EAR), places=(PLACE,)) -> dict[str, int]:
    return compare_detections(before, after, places, old={"cat"}, new={"dog", "puppy"})


def test_the_context_stays_where_its_boxes_and_labels_do():
    moved, renamed = region("tree", 62, 12, 92, 92), region("pole", 60, 10, 90, 90)
    for after, again in ((moved, 1), (renamed, 0), (region("tree", 0, 60, 30, 90), 0)):
        result = counts(after)
        assert (result["context"], result["context again"]) == (1, again)


def test_what_was_there_and_what_was_pasted_are_found_and_named():
    result = counts(region("dog", 12, 10, 50, 50), TREE)
    assert (result["replaced found"], result["replaced named"]) == (1, 1)
    assert (result["pasted found"], result["pasted named"]) == (1, 1)
    assert counts(region("puppy", *PLACE))["pasted named"] == 1
    unnamed = counts(region("horse", *PLACE))
    assert (unnamed["pasted found"], unnamed["pasted named"]) == (1, 0)
    assert counts(TREE)["pasted found"] == 0


def test_each_place_counts():
    result = counts(region("dog", *PLACE), places=(PLACE, (60.0, 60.0, 70.0, 70.0)))
    assert (result["places"], result["pasted found"]) == (2, 1)


def test_shares_of_nothing_are_none():
    assert detection_shares(counts(region("dog", *PLACE), TREE)) == {
        "context found again": 1.0,
        "replaced objects found": 1.0,
        "replaced objects named": 1.0,
        "pasted objects found": 1.0,
        "pasted objects named": 1.0,
    }
    assert detection_shares(counts(before=()))["context found again"] is None
