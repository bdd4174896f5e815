"""Image transforms from photos to network input, for training a backbone end to end."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from captioning.config.loadable import loadable
from captioning.config.ranges import NonNegativeInt, PositiveFloat, Share
from captioning.vision.backbones import Backbone

# Random distortions of photos, with the kinds and strengths of BLIP's fine-tuning.
#
# They work on bytes ``(3, H, W)``: Pillow's affine transforms, which these follow, take five to a
# hundred times as long.
Pixels = np.ndarray
GREY = 128
SHEAR = 0.15  # pixels a pixel
SHIFT = 5  # pixels
ANGLE = 15  # degrees

Distortion = Callable[[Pixels, int], Pixels]


def _unchanged(pixels: Pixels, sign: int) -> Pixels:
    return pixels


def _with_contrast(pixels: Pixels, sign: int) -> Pixels:
    """Stretch each channel to the full range from 0 to 255."""
    return np.stack([_stretched(channel) for channel in pixels])


def _stretched(channel: Pixels) -> Pixels:
    low, high = int(channel.min()), int(channel.max())
    if high <= low:
        return channel
    scale = 255.0 / (high - low)
    table = np.clip((np.arange(256) * scale - low * scale).astype(np.int64), 0, 255)
    return table.astype(np.uint8)[channel]


def _equalised(pixels: Pixels, sign: int) -> Pixels:
    """Equalise the histogram of each channel."""
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
    """Shift the content by `SHIFT` pixels towards the start, or towards the end for ``sign`` -1."""
    kept, left = [slice(None)] * 3, [slice(None)] * 3
    kept[axis], left[axis] = slice(None, -SHIFT), slice(SHIFT, None)
    shifted = np.full_like(pixels, GREY)
    if sign > 0:
        shifted[tuple(kept)] = pixels[tuple(left)]
    else:
        shifted[tuple(left)] = pixels[tuple(kept)]
    return shifted


def _sheared(pixels: Pixels, sign: int) -> Pixels:
    """Shift row y by ``sign * SHEAR * y``, with linear interpolation."""
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
    """Shift column x by ``sign * SHEAR * x``, with linear interpolation."""
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
    """Apply ``count`` distortions to a photo, each with probability 0.5.

    Args:
        pixels: ``(3, H, W) uint8`` of the size that the network sees: strengths are in its pixels.
        count: draws of a kind; 2 in BLIP's fine-tuning.
        rng: draws kinds, signs and whether each distortion is done.
    """
    for kind in rng.integers(len(KINDS), size=count):
        if rng.random() < 0.5:
            pixels = KINDS[kind](pixels, int(rng.choice((-1, 1))))
    return pixels


_TRIES = 10  # of a crop of a drawn shape that fits into the photo, as torchvision's


@loadable
class EvalTransform:
    """Transform that resizes to the backbone's square, with the same pixels as cached features.

    They stay ``uint8``, a quarter of the bytes to hand over, and the backbone normalises them.
    """

    def __init__(self, *, backbone: Backbone) -> None:
        """Use the image size of ``backbone``."""
        self.image_size = backbone.image_size

    def __call__(self, image: Image.Image) -> Tensor:
        """Return ``(3, H, W) uint8`` for an RGB photo."""
        return as_pixels(self.crop(image, (0, 0, image.width, image.height)))

    def crop(self, image: Image.Image, box: tuple[float, float, float, float]) -> Image.Image:
        """Crop a part ``(x1, y1, x2, y2)`` of a photo, at the backbone's size."""
        size = (self.image_size, self.image_size)
        if box != (0, 0, *size) or image.size != size:
            image = image.resize(size, Image.Resampling.BICUBIC, box=box)
        return image


def as_pixels(image: Image.Image) -> Tensor:
    """Convert an RGB photo to ``(3, H, W) uint8``."""
    return torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1)


@loadable
class TrainTransform:
    """Transform with a random crop, optionally mirrored, and resized.

    Crops are large, because a crop without an object that the caption mentions makes the caption
    wrong. A mirrored photo makes captions with "left" or "right" wrong, and text in it unreadable;
    hence ``flip`` is off by default.
    """

    def __init__(
        self,
        *,
        backbone: Backbone,
        smallest_crop: Share = 0.6,
        flip: bool = False,
        distortions: NonNegativeInt = 0,
        widest_crop: PositiveFloat | None = None,
        generator: np.random.Generator | None = None,
    ) -> None:
        """Configure the transform.

        Args:
            backbone: see `EvalTransform`.
            smallest_crop: smallest share of the photo's area, in (0, 1]; 1 never crops.
            flip: mirror every second photo.
            distortions: see `captioning.data.batches.transforms.distorted`; 0 for none.
            widest_crop: crops have any shape up to this ratio of the longer to the shorter side, at
                least 1, as torchvision's ``RandomResizedCrop``; None: the photo's shape.
            generator: draws crops and flips; None draws a seed per photo from torch's own
                generator, see also `seeded`.

        Raises:
            ValueError: ``smallest_crop`` is outside (0, 1], ``distortions`` negative, or
                ``widest_crop`` below 1.
        """
        if not 0 < smallest_crop <= 1:
            raise ValueError(f"smallest_crop must be in (0, 1]: got {smallest_crop}")
        if distortions < 0:
            raise ValueError(f"distortions must be at least 0: got {distortions}")
        if widest_crop is not None and widest_crop < 1:
            raise ValueError(f"widest_crop must be at least 1, or null: got {widest_crop}")
        self.image_size = backbone.image_size
        self.distortions = distortions
        self.widest_crop = widest_crop
        self.smallest_crop = smallest_crop
        self.flip = flip
        self._generator = generator

    @property
    def smallest_side(self) -> int:
        """Photo side in pixels above which the smallest crop need not be enlarged."""
        return math.ceil(self.image_size / math.sqrt(self.smallest_crop / (self.widest_crop or 1)))

    def __call__(self, image: Image.Image) -> Tensor:
        """Return ``(3, H, W) uint8`` for an RGB photo."""
        rng = self._rng()
        width, height = self._sides(image.width, image.height, rng)
        left, top = rng.uniform(0, image.width - width), rng.uniform(0, image.height - height)
        mirrored = self.flip and rng.random() < 0.5
        right, bottom = max(left + width, left + 1), max(top + height, top + 1)
        box = (round(left), round(top), round(right), round(bottom))
        part = as_pixels(image.crop(box))
        pixels = distorted(self._resized(part).numpy(), self.distortions, rng)
        return torch.from_numpy(pixels[:, :, ::-1].copy() if mirrored else pixels)

    def _sides(self, width: int, height: int, rng: np.random.Generator) -> tuple[float, float]:
        """Draw width and height of a crop."""
        if self.widest_crop is None:
            scale = np.sqrt(rng.uniform(self.smallest_crop, 1))
            return width * scale, height * scale
        limit = math.log(self.widest_crop)
        for _ in range(_TRIES):
            area = width * height * rng.uniform(self.smallest_crop, 1)
            ratio = math.exp(rng.uniform(-limit, limit))
            sides = math.sqrt(area * ratio), math.sqrt(area / ratio)
            if sides[0] <= width and sides[1] <= height:
                return sides
        return min(width, height * self.widest_crop), min(height, width * self.widest_crop)

    def _resized(self, pixels: Tensor) -> Tensor:
        """Resize to ``(3, H, W)`` as Pillow's bicubic filter, three times as fast."""
        side = self.image_size
        if pixels.shape[1:] == (side, side):
            return pixels.contiguous()
        resized = interpolate(pixels[None], (side, side), mode="bicubic", antialias=True)
        return resized[0].contiguous()

    def seeded(self, key: Sequence[int]) -> TrainTransform:
        """Return the same transform with random numbers that depend only on ``key``."""
        transform = copy.copy(self)
        transform._generator = np.random.default_rng(tuple(key))
        return transform

    def _rng(self) -> np.random.Generator:
        if self._generator is not None:
            return self._generator
        return np.random.default_rng(int(torch.randint(2**62, ()).item()))
