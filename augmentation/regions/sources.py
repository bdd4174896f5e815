"""Boxes to paste from, each photo used as little as possible (Bujimalla et al.)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from augmentation.regions.boxes import Box, Limits, area, aspect, change
from augmentation.regions.proposal import drawn_generator


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePhoto:
    """A photo to paste from.

    Attributes:
        image_id: of its roster.
        image_path: the file.
        boxes: of the things that may be pasted, one or more.
    """

    image_id: str
    image_path: Path
    boxes: tuple[Box, ...]


class SourcePool:
    """The photos of one novel object, which counts how often each was used.

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

    def choose(
        self, targets: Sequence[Box], *, least: int, key: str
    ) -> tuple[SourcePhoto, tuple[Box | None, ...]] | None:
        """A photo to replace things of another photo from, and for each of them a box of it.

        Of the photos that can replace at least ``least`` targets, one that was used least often;
        of these one that can replace most; of these one drawn by seed and key.

        Args:
            targets: boxes that shall be replaced.
            least: how many of them must be.
            key: names what is replaced.

        Returns:
            None if no photo can. Boxes are None where a target finds none within the limits.
        """
        if not self.photos or not targets:
            return None
        allowed = self._limits.allowed(self._boxes, targets)
        able = np.logical_or.reduceat(allowed, self._starts, axis=1).sum(axis=0)
        fits = np.flatnonzero(able >= max(least, 1))
        if not fits.size:
            return None
        draw = drawn_generator(self._seed, key)
        ranks = draw.permutation(len(self.photos))
        best = fits[np.lexsort((ranks[fits], -able[fits], self.uses[fits]))[0]]
        self.uses[best] += 1
        photo, start = self.photos[best], self._starts[best]
        own = allowed[:, start : start + len(photo.boxes)]
        return photo, _assigned(photo.boxes, targets, own)


def _assigned(
    boxes: Sequence[Box], targets: Sequence[Box], allowed: np.ndarray
) -> tuple[Box | None, ...]:
    """For each target the likest box that was taken least often, large targets first."""
    taken = [0] * len(boxes)
    assigned: list[Box | None] = [None] * len(targets)
    for t in sorted(range(len(targets)), key=lambda t: (-area(targets[t]), t)):
        able = np.flatnonzero(allowed[t]).tolist()
        if able:
            best = min(able, key=lambda s: (taken[s], _unlike(boxes[s], targets[t]), s))
            taken[best] += 1
            assigned[t] = boxes[best]
    return tuple(assigned)


def _unlike(first: Box, second: Box) -> float:
    return change(area(first), area(second)) + change(aspect(first), aspect(second))
