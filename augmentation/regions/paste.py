"""Paste patches of photos over boxes of another photo, and map each pixel to its source photo.

A patch is resized to its box and blended in over a few pixels inside the box's edges; edges on the
photo's border are not blended. Pixels outside all boxes stay bit-identical.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from augmentation.regions.boxes import area, clipped, pixels
from captioning.config.ranges import Fraction, NonNegativeInt
from captioning.types import Box
from captioning.vision.photos import load_rgb

OUTSIDE = "target box outside the photo"
SOURCE_OUTSIDE = "source box outside its photo"
COVERED = "too much of a patch would cover what must stay visible"
MAX_PASTES = 255  # a map of bytes holds no more numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Paste:
    """A source box of one photo, and the target box of another photo that it replaces.

    Attributes:
        source: photo that the patch is cut from.
        source_box: box in pixels of ``source``; parts outside are cut off.
        target_box: box in pixels of the photo pasted onto; parts outside are cut off.
        label: label of the patch.
    """

    source: Path
    source_box: Box
    target_box: Box
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Blending:
    """Settings for blending patches into their surroundings.

    Attributes:
        feather: pixels inside an edge over which a patch fades in, at most a quarter of its side;
            0 for hard edges.
        max_omitted: largest share of a patch that may be left out where boxes must stay visible
            (CutSwap, section 3.2.3).

    Raises:
        ValueError: ``feather`` is negative, or ``max_omitted`` is outside [0, 1].
    """

    feather: NonNegativeInt = 4
    max_omitted: Fraction = 0.5

    def __post_init__(self) -> None:
        if self.feather < 0 or not 0 <= self.max_omitted <= 1:
            raise ValueError(
                "feather must not be negative and max_omitted in [0, 1]: got "
                f"{self.feather} and {self.max_omitted}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pasted:
    """Result of pasting: the image and its source map.

    Attributes:
        picture: ``(H, W, 3) uint8``.
        owners: ``(H, W) uint8``: the number (from 1) of the paste that a pixel has anything from;
            0 where the picture is as it was.
        problem: why nothing was pasted, the same few words for the same trouble; else empty.
    """

    picture: np.ndarray
    owners: np.ndarray
    problem: str = ""


class PhotoCache:
    """Cache of the most recently used decoded photos.

    Args:
        capacity: number of photos; 64 of 640x480 pixels take 60 MB.
    """

    def __init__(self, *, capacity: int = 64) -> None:
        self.capacity = capacity
        self._photos: OrderedDict[Path, Image.Image] = OrderedDict()

    def photo(self, path: Path) -> Image.Image:
        """Photo in RGB with its EXIF rotation applied.

        Raises:
            FileNotFoundError, ValueError: `load_rgb` raises them.
        """
        photo = self._photos.pop(path, None) or load_rgb(path)
        self._photos[path] = photo
        if len(self._photos) > self.capacity:
            self._photos.popitem(last=False)
        return photo


def paste(
    picture: np.ndarray,
    pastes: Sequence[Paste],
    sources: Sequence[Image.Image],
    *,
    blending: Blending,
    protected: Sequence[Box] = (),
) -> Pasted:
    """Paste all patches, or none if one fails.

    Larger patches are pasted first, so that small ones lie on top.

    Args:
        picture: ``(H, W, 3) uint8``; not changed.
        pastes: patches with their targets.
        sources: the photo of each paste, RGB.
        blending: blending of edges.
        protected: boxes of ``picture`` that must stay visible.

    Raises:
        ValueError: ``picture`` is not (H, W, 3) uint8, or there are over 255 pastes.
    """
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
        raise ValueError(f"picture must be (H, W, 3) uint8: got {picture.shape} {picture.dtype}")
    if len(pastes) > MAX_PASTES:
        raise ValueError(f"an image can have at most {MAX_PASTES} pastes: got {len(pastes)}")
    result, owners = picture.copy(), np.zeros(picture.shape[:2], np.uint8)
    order = sorted(range(len(pastes)), key=lambda n: (-area(pastes[n].target_box), n))
    for number in order:
        problem = _paste_patch(
            result, owners, number + 1, pastes[number], sources[number], blending, protected
        )
        if problem:
            no_owners = np.zeros_like(owners)
            return Pasted(picture=picture.copy(), owners=no_owners, problem=problem)
    return Pasted(picture=result, owners=owners)


def _paste_patch(
    picture: np.ndarray,
    owners: np.ndarray,
    owner: int,
    patch_move: Paste,
    source: Image.Image,
    blending: Blending,
    protected: Sequence[Box],
) -> str:
    """Paste one patch in place; return a problem if the patch does not fit."""
    height, width = picture.shape[:2]
    source_box = clipped(patch_move.source_box, source.size)
    visible = clipped(patch_move.target_box, (width, height))
    if source_box is None:
        return SOURCE_OUTSIDE
    if visible is None:
        return OUTSIDE
    x1, y1, x2, y2 = pixels(visible)
    alpha = _alpha((x1, y1, x2, y2), (width, height), blending.feather, protected)
    if np.count_nonzero(alpha) < (1 - blending.max_omitted) * alpha.size or not alpha.any():
        return COVERED
    crop = _visible_part(source_box, patch_move.target_box, visible)
    patch = source.resize((x2 - x1, y2 - y1), Image.Resampling.BICUBIC, box=crop)
    place = picture[y1:y2, x1:x2]
    previous = place.astype(np.float32)
    mixed = previous + (np.asarray(patch, np.float32) - previous) * alpha[..., None]
    place[:] = (mixed + 0.5).astype(np.uint8)
    owners[y1:y2, x1:x2][alpha > 0] = owner
    return ""


def _visible_part(source: Box, target: Box, visible: Box) -> Box:
    """Part of ``source`` that maps to the visible part of ``target``."""
    x = (source[2] - source[0]) / (target[2] - target[0])
    y = (source[3] - source[1]) / (target[3] - target[1])
    return (
        source[0] + (visible[0] - target[0]) * x,
        source[1] + (visible[1] - target[1]) * y,
        min(source[2], source[0] + (visible[2] - target[0]) * x),
        min(source[3], source[1] + (visible[3] - target[1]) * y),
    )


def _alpha(
    box: tuple[int, int, int, int], size: tuple[int, int], feather: int, protected: Sequence[Box]
) -> np.ndarray:
    """Blending weights of a patch's pixels, ``(h, w) float32`` in [0, 1]; 0 in protected boxes."""
    x1, y1, x2, y2 = box
    across = _ramp(x2 - x1, feather, open_start=x1 == 0, open_end=x2 == size[0])
    down = _ramp(y2 - y1, feather, open_start=y1 == 0, open_end=y2 == size[1])
    alpha = np.minimum(down[:, None], across[None])
    for protected_box in protected:
        inside = clipped(protected_box, size)
        if inside is not None:
            a, b, c, d = pixels(inside)
            beside = _distance(x1, x2, a, c)
            above = _distance(y1, y2, b, d)
            away = np.maximum(above[:, None], beside[None])
            alpha = np.minimum(alpha, np.clip(away / (feather + 1), 0, 1))
    return alpha.astype(np.float32)


def _ramp(length: int, feather: int, *, open_start: bool, open_end: bool) -> np.ndarray:
    """Positive weights that rise to 1 from each end; ends at the photo's border stay 1."""
    steps = min(feather, length // 4) + 1
    places = np.arange(1, length + 1)
    start = np.full(length, steps) if open_start else places
    end = np.full(length, steps) if open_end else places[::-1]
    return np.minimum(np.minimum(start, end) / steps, 1)


def _distance(start: int, end: int, low: int, high: int) -> np.ndarray:
    """Distance of each pixel in [start, end) to the span [low, high): 0 inside, 1 beside it."""
    places = np.arange(start, end)
    return np.maximum(np.maximum(low - places, places - high + 1), 0)
