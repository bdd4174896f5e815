"""Whether a detector is disturbed by pasting: what it finds in photos before and after.

Section 4.5.1 of the CutSwap thesis (Hahn, 2022) compares boxes and classes of examples by eye and
finds that those of the context stay and that those of the patch are its own. Here they are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from augmentation.regions.boxes import Box, area, common, iou
from captioning.types import Region

SAME = 0.5  # IoU of boxes of one thing
OUTSIDE = 0.5  # share of a box of the context that may be pasted over

# Shares of the comparison, each of counts of `found_again`.
SHARES = {
    "context found again": ("context again", "context"),
    "replaced objects found": ("replaced found", "places"),
    "replaced objects named": ("replaced named", "places"),
    "pasted objects found": ("pasted found", "places"),
    "pasted objects named": ("pasted named", "places"),
}


def found_again(
    before: Sequence[Region],
    after: Sequence[Region],
    places: Sequence[Box],
    *,
    old: Collection[str],
    new: Collection[str],
) -> Counter[str]:
    """What a detector found in a photo and in the picture made of it.

    Args:
        before: found in the photo.
        after: found in the picture.
        places: boxes that were pasted over.
        old: labels that name the object that was there.
        new: labels that name the one that is there now.

    Returns:
        ``context``: boxes of the photo that lie mostly outside the places, and ``context again``:
        those of which the picture has one with the same label; ``places``; and the places of which
        the photo (``replaced``) and the picture (``pasted``) have a box (``found``) with the
        object's label (``named``).
    """
    context = [region for region in before if not _is_covered(region.box, places)]
    counts = Counter({"context": len(context), "places": len(places)})
    counts["context again"] = sum(_has(after, thing.box, (thing.label,)) for thing in context)
    for name, regions, labels in (("replaced", before, old), ("pasted", after, new)):
        counts[f"{name} found"] = sum(_has(regions, place) for place in places)
        counts[f"{name} named"] = sum(_has(regions, place, labels) for place in places)
    return counts


def shares(counts: Mapping[str, int]) -> dict[str, float | None]:
    """Shares in [0, 1] of summed counts; None where there is nothing to count."""
    return {
        name: counts[part] / counts[total] if counts[total] else None
        for name, (part, total) in SHARES.items()
    }


def _is_covered(box: Box, places: Sequence[Box]) -> bool:
    return any(common(box, place) > OUTSIDE * area(box) for place in places)


def _has(regions: Sequence[Region], box: Box, labels: Collection[str] | None = None) -> bool:
    return any(
        iou(region.box, box) >= SAME and (labels is None or region.label in labels)
        for region in regions
    )
