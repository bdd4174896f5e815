"""Geometry of boxes, and the rules for which boxes may replace each other.

Boxes are ``(x1, y1, x2, y2)`` in pixels of their photo. Changes of area and of aspect (width by
height) are counted from the smaller to the larger of two values, so that shrinking and stretching
are limited alike: "by 200%" means at most three times as much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from captioning.config.ranges import NonNegativeFloat, PositiveFloat
from captioning.types import Box, Region

TOO_SMALL = "box too small"
ODD_ASPECT = "box too flat or too narrow"
AREA_CHANGES = "area changes too much"
ASPECT_CHANGES = "aspect changes too much"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on the boxes that may replace each other (Bujimalla et al., image selection).

    Attributes:
        smallest_area: minimum area of either box, in square pixels.
        area_change: largest change of area, 2 for 200%.
        smallest_aspect, largest_aspect: limits on the aspect ratio of either box.
        aspect_change: largest change of aspect, 0.3 for 30%.

    Raises:
        ValueError: a limit is negative, or the range of aspect ratios is empty.
    """

    smallest_area: NonNegativeFloat = 1000.0
    area_change: NonNegativeFloat = 2.0
    smallest_aspect: PositiveFloat = 0.05
    largest_aspect: PositiveFloat = 5.0
    aspect_change: NonNegativeFloat = 0.3

    def __post_init__(self) -> None:
        if min(self.smallest_area, self.area_change, self.aspect_change) < 0:
            raise ValueError(f"limits must not be negative: got {self}")
        if not 0 < self.smallest_aspect <= self.largest_aspect:
            raise ValueError(
                "aspects must be 0 < smallest <= largest: got "
                f"{self.smallest_aspect} and {self.largest_aspect}"
            )

    def box_problem(self, box: Box) -> str:
        """Reason why a box can neither be moved nor be replaced; empty if it can."""
        if area(box) <= 0 or area(box) < self.smallest_area:
            return TOO_SMALL
        if not self.smallest_aspect <= aspect(box) <= self.largest_aspect:
            return ODD_ASPECT
        return ""

    def problem(self, source: Box, target: Box) -> str:
        """Reason why ``source`` may not replace ``target``; empty if it may."""
        for box in (source, target):
            if problem := self.box_problem(box):
                return problem
        if relative_change(area(source), area(target)) > self.area_change:
            return AREA_CHANGES
        if relative_change(aspect(source), aspect(target)) > self.aspect_change:
            return ASPECT_CHANGES
        return ""

    def allowed(self, sources: Sequence[Box] | np.ndarray, targets: Sequence[Box]) -> np.ndarray:
        """Check many pairs of boxes at once with the rules of `problem`.

        Returns:
            ``(T, S) bool``: whether source S may replace target T.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            source_measures, target_measures = _measures(sources), _measures(targets)
            valid = (
                self._within_limits(target_measures)[:, None]
                & self._within_limits(source_measures)[None]
            )
            areas, aspects = (
                np.maximum(t[:, None] / s[None], s[None] / t[:, None]) - 1
                for s, t in zip(source_measures, target_measures, strict=True)
            )
        return valid & (areas <= self.area_change) & (aspects <= self.aspect_change)

    def _within_limits(self, measures: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        areas, aspects = measures
        in_range = (aspects >= self.smallest_aspect) & (aspects <= self.largest_aspect)
        return (areas > 0) & (areas >= self.smallest_area) & in_range


def _measures(boxes: Sequence[Box] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    corners = np.asarray(boxes, dtype=float).reshape(-1, 4)
    widths, heights = corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1]
    return widths.clip(0) * heights.clip(0), widths / heights


def area(box: Box) -> float:
    """Area in square pixels; 0 for corners in the wrong order."""
    return max(box[2] - box[0], 0.0) * max(box[3] - box[1], 0.0)


def aspect(box: Box) -> float:
    """Aspect ratio of a box with a positive area: width divided by height."""
    return (box[2] - box[0]) / (box[3] - box[1])


def relative_change(first: float, second: float) -> float:
    """Relative increase from the smaller to the larger value: 0 if equal, 1 if doubled."""
    return max(first / second, second / first) - 1


def intersection_area(first: Box, second: Box) -> float:
    """Area in square pixels of the intersection of two boxes."""
    left, top = max(first[0], second[0]), max(first[1], second[1])
    right, bottom = min(first[2], second[2]), min(first[3], second[3])
    return area((left, top, right, bottom))


def iou(first: Box, second: Box) -> float:
    """Intersection over union, in [0, 1]."""
    shared = intersection_area(first, second)
    return shared / (area(first) + area(second) - shared) if shared else 0.0


def contains(outer: Box, inner: Box) -> bool:
    """Return whether ``inner`` lies completely in ``outer``; equal boxes contain each other."""
    starts = outer[0] <= inner[0] and outer[1] <= inner[1]
    return starts and inner[2] <= outer[2] and inner[3] <= outer[3]


def clipped(box: Box, size: tuple[int, int]) -> Box | None:
    """Part of a box inside a photo of size ``(width, height)``; None if outside."""
    corners = (max(box[0], 0), max(box[1], 0), min(box[2], size[0]), min(box[3], size[1]))
    return corners if area(corners) > 0 else None


def pixels(box: Box) -> tuple[int, int, int, int]:
    """Smallest box with integer coordinates around a box with a positive area."""
    return (math.floor(box[0]), math.floor(box[1]), math.ceil(box[2]), math.ceil(box[3]))


def without_duplicates(
    regions: Sequence[Region], *, threshold: float, one_object: bool = False
) -> tuple[Region, ...]:
    """Non-maximum suppression within each label.

    Args:
        regions: regions of one photo.
        threshold: maximum IoU of two boxes; above it the box with the lower score is removed, or
            the later one of equals.
        one_object: all regions show what one word names, whatever their labels: "men" and "man".

    Returns:
        The remaining regions, in their order.
    """
    selected: list[int] = []
    for number in sorted(range(len(regions)), key=lambda n: (-regions[n].score, n)):
        region = regions[number]
        rivals = (regions[k] for k in selected if one_object or regions[k].label == region.label)
        if all(iou(region.box, rival.box) <= threshold for rival in rivals):
            selected.append(number)
    return tuple(regions[number] for number in sorted(selected))


def contains_others(regions: Sequence[Region], number: int) -> bool:
    """Return whether a box contains another whole box, which would move together with it."""
    outer = regions[number].box
    other_boxes = (region.box for n, region in enumerate(regions) if n != number)
    return any(contains(outer, other) for other in other_boxes)


def without_containers(regions: Sequence[Region]) -> tuple[Region, ...]:
    """Regions that contain no other region, so that each shows one object (Bujimalla et al.)."""
    return tuple(r for number, r in enumerate(regions) if not contains_others(regions, number))
