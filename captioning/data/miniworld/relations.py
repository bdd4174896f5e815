"""Where things are to each other: names derived from boxes, never from intentions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Box = tuple[float, float, float, float]

NAMES = ("left of", "right of", "next to", "behind", "in front of", "above", "below", "on", "under")
INVERSE = {
    "left of": "right of", "right of": "left of", "next to": "next to", "behind": "in front of",
    "in front of": "behind", "above": "below", "below": "above",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Relation:
    """``subject`` is ``name`` ``object``; both are node numbers."""

    subject: int
    name: str
    object: int


def union(boxes: Sequence[Box]) -> Box:
    """The box around ``boxes``."""
    return (
        min(box[0] for box in boxes), min(box[1] for box in boxes),
        max(box[2] for box in boxes), max(box[3] for box in boxes),
    )  # fmt: skip


def overlap(one: Box, two: Box) -> float:
    """Area that two boxes share."""
    wide = min(one[2], two[2]) - max(one[0], two[0])
    tall = min(one[3], two[3]) - max(one[1], two[1])
    return max(0.0, wide) * max(0.0, tall)


def area(box: Box) -> float:
    """Area of a box."""
    return (box[2] - box[0]) * (box[3] - box[1])


def between_ground(one: Box, two: Box) -> tuple[str, ...]:
    """Relations of ``one`` to ``two``, both standing on the same ground."""
    gap = max(two[0] - one[2], one[0] - two[2])
    shared = min(one[2], two[2]) - max(one[0], two[0])
    narrow = min(one[2] - one[0], two[2] - two[0])
    depth = two[3] - one[3]
    if gap >= -0.01:
        side = "left of" if one[0] < two[0] else "right of"
        near = gap <= 0.16 and abs(depth) <= 0.14
        return (side, "next to") if near else (side,)
    if shared >= 0.35 * narrow and abs(depth) >= 0.05:
        return ("behind",) if depth > 0 else ("in front of",)
    return ()


def between_flying(one: Box, two: Box) -> tuple[str, ...]:
    """Relations of ``one`` to ``two``, both in the air."""
    gap = max(two[0] - one[2], one[0] - two[2])
    if gap >= -0.01:
        side = "left of" if one[0] < two[0] else "right of"
        level = abs(one[1] + one[3] - two[1] - two[3]) <= 0.24
        return (side, "next to") if gap <= 0.16 and level else (side,)
    if one[3] <= two[1] + 0.01:
        return ("above",)
    return ("below",) if two[3] <= one[1] + 0.01 else ()


def between_levels(high: Box, low: Box) -> tuple[str, ...]:
    """Relations of something in the sky to something below it."""
    shared = min(high[2], low[2]) - max(high[0], low[0])
    narrow = min(high[2] - high[0], low[2] - low[0])
    if high[3] <= low[1] + 0.03 and shared >= 0.4 * narrow:
        return ("above",)
    return ()
