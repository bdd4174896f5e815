"""Random distortions of photos, with the kinds and strengths of BLIP's fine-tuning.

They work on bytes ``(3, H, W)``: Pillow's affine transforms, which these follow, take five to a
hundred times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from PIL import Image

Pixels = np.ndarray
GREY = 128
SHEAR = 0.15  # pixels a pixel
SHIFT = 5  # pixels
ANGLE = 15  # degrees

Distortion = Callable[[Pixels, int], Pixels]


def _unchanged(pixels: Pixels, sign: int) -> Pixels:
    return pixels


def _with_contrast(pixels: Pixels, sign: int) -> Pixels:
    """Each channel stretched to all values from 0 to 255."""
    return np.stack([_stretched(channel) for channel in pixels])


def _stretched(channel: Pixels) -> Pixels:
    low, high = int(channel.min()), int(channel.max())
    if high <= low:
        return channel
    scale = 255.0 / (high - low)
    table = np.clip((np.arange(256) * scale - low * scale).astype(np.int64), 0, 255)
    return table.astype(np.uint8)[channel]


def _equalised(pixels: Pixels, sign: int) -> Pixels:
    """Each channel with about as many pixels of each value."""
    return np.stack([_levelled(channel) for channel in pixels])


def _levelled(channel: Pixels) -> Pixels:
    counts = np.bincount(channel.ravel(), minlength=256)
    present = counts[counts > 0]
    step = (present.sum() - present[-1]) // 255
    if len(present) <= 1 or not step:
        return channel
    before = np.cumsum(counts) - counts
    table = np.clip((step // 2 + before) // step, 0, 255)
    return table.astype(np.uint8)[channel]


def _shifted(axis: int, pixels: Pixels, sign: int) -> Pixels:
    """The content `SHIFT` pixels nearer to the beginning, or to the end where ``sign`` is -1."""
    kept, left = [slice(None)] * 3, [slice(None)] * 3
    kept[axis], left[axis] = slice(None, -SHIFT), slice(SHIFT, None)
    shifted = np.full_like(pixels, GREY)
    if sign > 0:
        shifted[tuple(kept)] = pixels[tuple(left)]
    else:
        shifted[tuple(left)] = pixels[tuple(kept)]
    return shifted


def _sheared(pixels: Pixels, sign: int) -> Pixels:
    """Row y is moved by ``sign * SHEAR * y``, between pixels by linear interpolation."""
    _, height, width = pixels.shape
    offsets = sign * SHEAR * (np.arange(height) + 0.5)
    whole = np.floor(offsets).astype(int)
    second = np.rint((offsets - whole) * 256).astype(np.uint16)[:, None]
    margin = int(SHEAR * height) + 2
    wide = np.full((3, height, width + 2 * margin), GREY, dtype=np.uint8)
    wide[:, :, margin : margin + width] = pixels
    rows = np.empty((3, height, width + 1), dtype=np.uint16)
    for row, offset in enumerate(whole + margin):
        rows[:, row] = wide[:, row, offset : offset + width + 1]
    mixed = rows[:, :, :-1] * (256 - second) + rows[:, :, 1:] * second
    return ((mixed + 128) >> 8).astype(np.uint8)


def _sheared_down(pixels: Pixels, sign: int) -> Pixels:
    """The same by columns."""
    turned = np.ascontiguousarray(pixels.swapaxes(1, 2))
    return np.ascontiguousarray(_sheared(turned, sign).swapaxes(1, 2))


def _rotated(pixels: Pixels, sign: int) -> Pixels:
    image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    resample, fill = Image.Resampling.BILINEAR, (GREY,) * 3
    rotated = image.rotate(sign * ANGLE, resample=resample, fillcolor=fill)
    return np.ascontiguousarray(np.asarray(rotated).transpose(2, 0, 1))


# Ten kinds there, drawn alike. At their strength (5 of 10) brightness and sharpness are multiplied
# with 1, so that with the identity three kinds change nothing.
KINDS: tuple[Distortion, ...] = (
    *(3 * [_unchanged]),
    _with_contrast,
    _equalised,
    _sheared,
    _sheared_down,
    partial(_shifted, 2),
    partial(_shifted, 1),
    _rotated,
)


def distorted(pixels: Pixels, count: int, rng: np.random.Generator) -> Pixels:
    """A photo after ``count`` distortions, each done with probability one half.

    Args:
        pixels: ``(3, H, W) uint8`` of the size that the network sees: strengths are in its pixels.
        count: draws of a kind; 2 in BLIP's fine-tuning.
        rng: draws kinds, signs and whether each distortion is done.
    """
    for kind in rng.integers(len(KINDS), size=count):
        if rng.random() < 0.5:
            pixels = KINDS[kind](pixels, int(rng.choice((-1, 1))))
    return pixels
