"""Patches of photos pasted over boxes of another photo, with a map of what came from where.

A patch is resized to its box and blended in over a few pixels inside the box's edges; edges on the
photo's border are not blended. Pixels outside all boxes stay as they are, bit by bit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from augmentation.regions.boxes import Box, area, clipped, pixels
from captioning.ranges import Fraction, NonNegativeInt
from captioning.vision.photos import load_rgb

OUTSIDE = "target box outside the photo"
SOURCE_OUTSIDE = "source box outside its photo"
COVERED = "too much of a patch would cover what must stay visible"
MOST_PASTES = 255  # what a map of bytes can tell apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Paste:
    """A box of one photo that takes the place of a box of another.

    Attributes:
        source: photo that the patch is cut from.
        source_box: in pixels of ``source``; what lies outside is cut off.
        target_box: in pixels of the photo pasted onto; what lies outside is cut off.
        label: what the patch shows.
    """

    source: Path
    source_box: Box
    target_box: Box
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Blending:
    """How patches meet what is around them.

    Attributes:
        feather: pixels inside an edge over which a patch fades in, at most a quarter of its side;
            0 for hard edges.
        most_omitted: largest share of a patch that may be left out for what must stay visible
            (CutSwap, section 3.2.3).

    Raises:
        ValueError: a negative feather, or a share outside [0, 1].
    """

    feather: NonNegativeInt = 4
    most_omitted: Fraction = 0.5

    def __post_init__(self) -> None:
        if self.feather < 0 or not 0 <= self.most_omitted <= 1:
            raise ValueError(
                "feather must not be negative and most_omitted in [0, 1]: got "
                f"{self.feather} and {self.most_omitted}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pasted:
    """A finished picture.

    Attributes:
        picture: ``(H, W, 3) uint8``.
        owners: ``(H, W) uint8``: the number (from 1) of the paste that a pixel has anything from;
            0 where the picture is as it was.
        problem: why nothing was pasted, the same few words for the same trouble; else empty.
    """

    picture: np.ndarray
    owners: np.ndarray
    problem: str = ""


class PhotoShelf:
    """Decoded photos, the last few kept.

    Args:
        most: photos kept; 64 of 640x480 pixels take 60 MB.
    """

    def __init__(self, *, most: int = 64) -> None:
        self.most = most
        self._photos: OrderedDict[Path, Image.Image] = OrderedDict()

    def photo(self, path: Path) -> Image.Image:
        """The photo in RGB, turned as its EXIF says.

        Raises:
            FileNotFoundError, ValueError: as `load_rgb`.
        """
        photo = self._photos.pop(path, None) or load_rgb(path)
        self._photos[path] = photo
        if len(self._photos) > self.most:
            self._photos.popitem(last=False)
        return photo


def paste(
    picture: np.ndarray,
    pastes: Sequence[Paste],
    sources: Sequence[Image.Image],
    *,
    blending: Blending,
    kept: Sequence[Box] = (),
) -> Pasted:
    """Paste all patches, or none.

    Larger patches are pasted first, so that small ones lie on top.

    Args:
        picture: ``(H, W, 3) uint8``; not changed.
        pastes: what goes where.
        sources: the photo of each paste, RGB.
        blending: of edges.
        kept: boxes of ``picture`` that stay visible.

    Raises:
        ValueError: a picture of another kind, or more than 255 pastes.
    """
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
        raise ValueError(f"picture must be (H, W, 3) uint8: got {picture.shape} {picture.dtype}")
    if len(pastes) > MOST_PASTES:
        raise ValueError(f"at most {MOST_PASTES} pastes a picture: got {len(pastes)}")
    done, owners = picture.copy(), np.zeros(picture.shape[:2], np.uint8)
    order = sorted(range(len(pastes)), key=lambda n: (-area(pastes[n].target_box), n))
    for number in order:
        problem = _paste_one(
            done, owners, number + 1, pastes[number], sources[number], blending, kept
        )
        if problem:
            blank = np.zeros_like(owners)
            return Pasted(picture=picture.copy(), owners=blank, problem=problem)
    return Pasted(picture=done, owners=owners)


def _paste_one(
    picture: np.ndarray,
    owners: np.ndarray,
    owner: int,
    move: Paste,
    source: Image.Image,
    blending: Blending,
    kept: Sequence[Box],
) -> str:
    """Paste one patch in place; the problem if it cannot be."""
    height, width = picture.shape[:2]
    full = clipped(move.source_box, source.size)
    seen = clipped(move.target_box, (width, height))
    if full is None:
        return SOURCE_OUTSIDE
    if seen is None:
        return OUTSIDE
    x1, y1, x2, y2 = pixels(seen)
    alpha = _alpha((x1, y1, x2, y2), (width, height), blending.feather, kept)
    if np.count_nonzero(alpha) < (1 - blending.most_omitted) * alpha.size or not alpha.any():
        return COVERED
    cut = _part(full, move.target_box, seen)
    patch = source.resize((x2 - x1, y2 - y1), Image.Resampling.BICUBIC, box=cut)
    place = picture[y1:y2, x1:x2]
    old = place.astype(np.float32)
    mixed = old + (np.asarray(patch, np.float32) - old) * alpha[..., None]
    place[:] = (mixed + 0.5).astype(np.uint8)
    owners[y1:y2, x1:x2][alpha > 0] = owner
    return ""


def _part(source: Box, target: Box, seen: Box) -> Box:
    """What of ``source`` falls into the part ``seen`` of ``target``."""
    x = (source[2] - source[0]) / (target[2] - target[0])
    y = (source[3] - source[1]) / (target[3] - target[1])
    return (
        source[0] + (seen[0] - target[0]) * x,
        source[1] + (seen[1] - target[1]) * y,
        min(source[2], source[0] + (seen[2] - target[0]) * x),
        min(source[3], source[1] + (seen[3] - target[1]) * y),
    )


def _alpha(
    box: tuple[int, int, int, int], size: tuple[int, int], feather: int, kept: Sequence[Box]
) -> np.ndarray:
    """Weight of a patch's pixels, ``(h, w) float32`` in [0, 1]; 0 in what is kept."""
    x1, y1, x2, y2 = box
    across = _ramp(x2 - x1, feather, open_start=x1 == 0, open_end=x2 == size[0])
    down = _ramp(y2 - y1, feather, open_start=y1 == 0, open_end=y2 == size[1])
    alpha = np.minimum(down[:, None], across[None])
    for other in kept:
        inside = clipped(other, size)
        if inside is not None:
            a, b, c, d = pixels(inside)
            beside = _distance(x1, x2, a, c)
            above = _distance(y1, y2, b, d)
            away = np.maximum(above[:, None], beside[None])
            alpha = np.minimum(alpha, np.clip(away / (feather + 1), 0, 1))
    return alpha.astype(np.float32)


def _ramp(length: int, feather: int, *, open_start: bool, open_end: bool) -> np.ndarray:
    """Rises from either end that is not open to 1; above 0 everywhere."""
    steps = min(feather, length // 4) + 1
    places = np.arange(1, length + 1)
    start = np.full(length, steps) if open_start else places
    end = np.full(length, steps) if open_end else places[::-1]
    return np.minimum(np.minimum(start, end) / steps, 1)


def _distance(start: int, end: int, low: int, high: int) -> np.ndarray:
    """Of each pixel in [start, end) to the span [low, high): 0 inside, 1 for its neighbours."""
    places = np.arange(start, end)
    return np.maximum(np.maximum(low - places, places - high + 1), 0)
