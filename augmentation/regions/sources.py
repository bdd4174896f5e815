"""Boxes to paste from, each photo used as little as possible (Bujimalla et al.)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from augmentation.regions.boxes import Limits, area, aspect, relative_change
from augmentation.regions.proposal import drawn_generator
from captioning.types import Box


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePhoto:
    """A photo to paste from.

    Attributes:
        image_id: of its roster.
        image_path: the file.
        boxes: of the objects that may be pasted, one or more.
    """

    image_id: str
    image_path: Path
    boxes: tuple[Box, ...]


class SourcePool:
    """The photos of one novel object, with a count of each one's uses.

    Args:
        photos: in any order.
        limits: which box may replace which.
        seed: of ties.
    """

    def __init__(self, *, photos: Sequence[SourcePhoto], limits: Limits, seed: int) -> None:
        self.photos = tuple(sorted(photos, key=lambda photo: photo.image_id))
        self.uses = np.zeros(len(self.photos), np.int64)
        self._limits, self._seed = limits, seed
        self._boxes = [box for photo in self.photos for box in photo.boxes]
        counts = [len(photo.boxes) for photo in self.photos]
        self._starts = np.cumsum([0, *counts])[:-1]
        self._chosen: dict[str, list[int]] = {}

    def choose(
        self, targets: Sequence[Box], *, min_targets: int, key: str
    ) -> tuple[SourcePhoto, tuple[Box | None, ...]] | None:
        """Choose a photo to paste from, and one of its boxes for each target.

        The photo can replace at least ``min_targets`` targets, and was not chosen for this key
        before. Of such photos the least used come first, of these those that can replace most, and
        of these one is drawn by seed and key.

        Args:
            targets: boxes that shall be replaced.
            min_targets: how many of them must be replaced.
            key: names what is replaced.

        Returns:
            None if no photo can. Boxes are None where a target finds none within the limits.
        """
        if not self.photos or not targets:
            return None
        allowed = self._limits.allowed(self._boxes, targets)
        num_replaceable = np.logical_or.reduceat(allowed, self._starts, axis=1).sum(axis=0)
        chosen = self._chosen.setdefault(key, [])
        usable = np.setdiff1d(np.flatnonzero(num_replaceable >= max(min_targets, 1)), chosen)
        if not usable.size:
            return None
        draw = drawn_generator(self._seed, key)
        ranks = draw.permutation(len(self.photos))
        best = usable[np.lexsort((ranks[usable], -num_replaceable[usable], self.uses[usable]))[0]]
        self.uses[best] += 1
        chosen.append(int(best))
        photo, start = self.photos[best], self._starts[best]
        allowed_boxes = allowed[:, start : start + len(photo.boxes)]
        return photo, _assign(photo.boxes, targets, allowed_boxes)


def _assign(
    boxes: Sequence[Box], targets: Sequence[Box], allowed: np.ndarray
) -> tuple[Box | None, ...]:
    """For each target the most similar of the boxes used least often, large targets first."""
    uses = [0] * len(boxes)
    assigned: list[Box | None] = [None] * len(targets)
    for t in sorted(range(len(targets)), key=lambda t: (-area(targets[t]), t)):
        usable = np.flatnonzero(allowed[t]).tolist()
        if usable:
            best = min(usable, key=lambda s: (uses[s], _box_difference(boxes[s], targets[t]), s))
            uses[best] += 1
            assigned[t] = boxes[best]
    return tuple(assigned)


def _box_difference(first: Box, second: Box) -> float:
    return relative_change(area(first), area(second)) + relative_change(
        aspect(first), aspect(second)
    )
