"""Whether pasting disturbs a detector: its boxes in photos before and after.

Section 4.5.1 of the CutSwap thesis (Hahn, 2022) compares boxes and classes of examples by eye: the
boxes of the context stay, and the patch gets boxes of its own class. Here they are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from augmentation.regions.boxes import area, intersection_area, iou
from captioning.types import Box, Region

SAME_OBJECT_IOU = 0.5  # of two boxes of one object, at least
MAX_PASTED_SHARE = 0.5  # of a context box that may be pasted over

# Shares of the comparison, each of counts of `compare_detections`.
SHARES = {
    "context found again": ("context again", "context"),
    "replaced objects found": ("replaced found", "places"),
    "replaced objects named": ("replaced named", "places"),
    "pasted objects found": ("pasted found", "places"),
    "pasted objects named": ("pasted named", "places"),
}


def compare_detections(
    before: Sequence[Region],
    after: Sequence[Region],
    places: Sequence[Box],
    *,
    old: Collection[str],
    new: Collection[str],
) -> Counter[str]:
    """Compare a detector's boxes in a photo and in the picture made of it.

    Args:
        before: boxes in the photo.
        after: boxes in the picture.
        places: boxes that were pasted over.
        old: labels that name the replaced object.
        new: labels that name the pasted object.

    Returns:
        ``context``: boxes of the photo that lie mostly outside the places. ``context again``: those
        of them that the picture has too, with the same label. ``places``: their number. For the
        photo (``replaced``) and the picture (``pasted``): the places with a box (``found``), and
        the places with a box of the object's label (``named``).
    """
    context = [region for region in before if not _is_covered(region.box, places)]
    counts = Counter({"context": len(context), "places": len(places)})
    counts["context again"] = sum(
        _has_box(after, region.box, (region.label,)) for region in context
    )
    for name, regions, labels in (("replaced", before, old), ("pasted", after, new)):
        counts[f"{name} found"] = sum(_has_box(regions, place) for place in places)
        counts[f"{name} named"] = sum(_has_box(regions, place, labels) for place in places)
    return counts


def detection_shares(counts: Mapping[str, int]) -> dict[str, float | None]:
    """Shares in [0, 1] of summed counts; None where there is nothing to count."""
    return {
        name: counts[part] / counts[total] if counts[total] else None
        for name, (part, total) in SHARES.items()
    }


def _is_covered(box: Box, places: Sequence[Box]) -> bool:
    return any(intersection_area(box, place) > MAX_PASTED_SHARE * area(box) for place in places)


def _has_box(regions: Sequence[Region], box: Box, labels: Collection[str] | None = None) -> bool:
    return any(
        iou(region.box, box) >= SAME_OBJECT_IOU and (labels is None or region.label in labels)
        for region in regions
    )
