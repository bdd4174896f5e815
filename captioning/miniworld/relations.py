"""Spatial relations of objects, derived only from their boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from captioning.types import Box

NAMES = ("left of", "right of", "next to", "behind", "in front of", "above", "below", "on", "under")
INVERSE = {
    "left of": "right of", "right of": "left of", "next to": "next to", "behind": "in front of",
    "in front of": "behind", "above": "below", "below": "above",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Relation:
    """Relation ``name`` of the node ``subject`` to the node ``object``, by node numbers."""

    subject: int
    name: str
    object: int


def union(boxes: Sequence[Box]) -> Box:
    """Smallest box around ``boxes``."""
    return (
        min(box[0] for box in boxes), min(box[1] for box in boxes),
        max(box[2] for box in boxes), max(box[3] for box in boxes),
    )  # fmt: skip


def overlap(first: Box, second: Box) -> float:
    """Area shared by two boxes."""
    wide = min(first[2], second[2]) - max(first[0], second[0])
    tall = min(first[3], second[3]) - max(first[1], second[1])
    return max(0.0, wide) * max(0.0, tall)


def area(box: Box) -> float:
    """Area of a box."""
    return (box[2] - box[0]) * (box[3] - box[1])


def between_ground(first: Box, second: Box) -> tuple[str, ...]:
    """Relations of ``first`` to ``second``, if both stand on the same ground."""
    gap = max(second[0] - first[2], first[0] - second[2])
    shared = min(first[2], second[2]) - max(first[0], second[0])
    narrow = min(first[2] - first[0], second[2] - second[0])
    depth = second[3] - first[3]
    if gap >= -0.01:
        side = "left of" if first[0] < second[0] else "right of"
        near = gap <= 0.16 and abs(depth) <= 0.14
        return (side, "next to") if near else (side,)
    if shared >= 0.35 * narrow and abs(depth) >= 0.05:
        return ("behind",) if depth > 0 else ("in front of",)
    return ()


def between_flying(first: Box, second: Box) -> tuple[str, ...]:
    """Relations of ``first`` to ``second``, if both are in the air."""
    gap = max(second[0] - first[2], first[0] - second[2])
    if gap >= -0.01:
        side = "left of" if first[0] < second[0] else "right of"
        level = abs(first[1] + first[3] - second[1] - second[3]) <= 0.24
        return (side, "next to") if gap <= 0.16 and level else (side,)
    if first[3] <= second[1] + 0.01:
        return ("above",)
    return ("below",) if second[3] <= first[1] + 0.01 else ()


def between_levels(high: Box, low: Box) -> tuple[str, ...]:
    """Relations of an object in the sky to an object below it."""
    shared = min(high[2], low[2]) - max(high[0], low[0])
    narrow = min(high[2] - high[0], low[2] - low[0])
    if high[3] <= low[1] + 0.03 and shared >= 0.4 * narrow:
        return ("above",)
    return ()
