"""Check annotated boxes against their photo, and scale them to the photo's pixels."""

from __future__ import annotations

import math
from pathlib import Path

from captioning.config.setting_error import SettingError
from captioning.types import Box, Sample
from captioning.vision.photos import photo_sizes

ROUNDING = 1.0  # pixels by which annotators' rounding may overshoot the photo's edge


def checked_box(box: Box, size: tuple[float, float] | None, where: str) -> Box:
    """Return a box inside its photo; an overshoot of less than one pixel is clipped.

    Args:
        box: ``(x1, y1, x2, y2)`` in pixels.
        size: ``(width, height)`` in pixels, or None when unknown: only the order is checked then.
        where: file and place, for the message.

    Raises:
        ValueError: the box has no area, or leaves the photo by one pixel or more.
    """
    if not all(map(math.isfinite, box)):
        raise SettingError(where, f"box {_shown(box)} is not finite", "correct it or remove it")
    if size is not None:
        width, height = size
        overshoot = max(-box[0], -box[1], box[2] - width, box[3] - height)
        if overshoot >= ROUNDING:
            raise SettingError(
                where,
                f"box {_shown(box)} leaves the photo of {width:g}x{height:g} pixels by "
                f"{overshoot:g}",
                "correct it or remove it",
            )
        x1, y1, x2, y2 = box
        box = (max(x1, 0.0), max(y1, 0.0), min(x2, float(width)), min(y2, float(height)))
    if box[2] <= box[0] or box[3] <= box[1]:
        raise SettingError(
            where, f"box {_shown(box)} has no area", "it must be x1 < x2 and y1 < y2 in pixels"
        )
    return box


def scaled_box(box: Box, annotated: tuple[float, float], actual: tuple[float, float]) -> Box:
    """Scale a box from an annotated photo size to the actual size of the same photo."""
    if annotated == actual:
        return box
    x, y = actual[0] / annotated[0], actual[1] / annotated[1]
    # A box to the edge must stay at the edge whatever the rounding of the product.
    return (box[0] * x, box[1] * y, min(box[2] * x, actual[0]), min(box[3] * y, actual[1]))


def photo_size(path: Path, annotated: tuple[int, int] | None = None) -> tuple[int, int]:
    """Return width and height of a photo as ``load_rgb`` shows it; reads only the header.

    Args:
        path: the photo.
        annotated: the size that annotations give, to notice photos turned by EXIF only.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: not a photo; or its EXIF turns it and the annotations are for the unturned one.
    """
    stored, turned = photo_sizes(path)
    if turned != stored and annotated == stored:
        problem = "EXIF turns this photo but its boxes are for the unturned pixels"
        raise SettingError(
            path, problem, "turn the pixels themselves or remove the EXIF orientation"
        )
    return turned


def sample_size(sample: Sample) -> tuple[float, float]:
    """Return width and height of a sample's photo, in the pixels of its regions.

    Raises:
        FileNotFoundError: the sample does not state it, and the file does not exist.
        ValueError: the file is not a photo.
    """
    return sample.size or photo_size(sample.image_path)


def _shown(box: Box) -> str:
    return "(" + ", ".join(f"{value:g}" for value in box) + ")"
