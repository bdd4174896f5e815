"""Photos to network input, for training a backbone end to end."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from captioning.config.loadable import loadable
from captioning.config.ranges import NonNegativeInt, PositiveFloat, Share
from captioning.data.batches.distortion import distorted
from captioning.vision.backbones import Backbone

_TRIES = 10  # of a crop of a drawn shape that fits into the photo, as torchvision's


@loadable
class EvalTransform:
    """Resize to the backbone's square; the same pixels as cached features see.

    They stay ``uint8``, a quarter of the bytes to hand over, and the backbone normalises them.
    """

    def __init__(self, *, backbone: Backbone) -> None:
        """Take the size of ``backbone``."""
        self.image_size = backbone.image_size

    def __call__(self, image: Image.Image) -> Tensor:
        """``(3, H, W) uint8`` of an RGB photo."""
        return as_pixels(self.crop(image, (0, 0, image.width, image.height)))

    def crop(self, image: Image.Image, box: tuple[float, float, float, float]) -> Image.Image:
        """A part ``(x1, y1, x2, y2)`` of a photo at the backbone's size."""
        size = (self.image_size, self.image_size)
        if box != (0, 0, *size) or image.size != size:
            image = image.resize(size, Image.Resampling.BICUBIC, box=box)
        return image


def as_pixels(image: Image.Image) -> Tensor:
    """``(3, H, W) uint8`` of an RGB photo."""
    return torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1)


@loadable
class TrainTransform:
    """A random crop, perhaps mirrored, resized.

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
        """Make the transform.

        Args:
            backbone: see `EvalTransform`.
            smallest_crop: smallest share of the photo's area, in (0, 1]; 1 never crops.
            flip: mirror every second photo.
            distortions: see `captioning.data.batches.distortion.distorted`; 0 for none.
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
        """Sides of photos in pixels from which the smallest crop need not be enlarged."""
        return math.ceil(self.image_size / math.sqrt(self.smallest_crop / (self.widest_crop or 1)))

    def __call__(self, image: Image.Image) -> Tensor:
        """``(3, H, W) uint8`` of an RGB photo."""
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
        """Width and height of a crop."""
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
        """``(3, H, W)`` at the backbone's size: as Pillow's bicubic, but in a third of the time."""
        side = self.image_size
        if pixels.shape[1:] == (side, side):
            return pixels.contiguous()
        resized = interpolate(pixels[None], (side, side), mode="bicubic", antialias=True)
        return resized[0].contiguous()

    def seeded(self, key: Sequence[int]) -> TrainTransform:
        """The same transform, whose draws depend on ``key`` alone, numbers of at least 0."""
        transform = copy.copy(self)
        transform._generator = np.random.default_rng(tuple(key))
        return transform

    def _rng(self) -> np.random.Generator:
        if self._generator is not None:
            return self._generator
        return np.random.default_rng(int(torch.randint(2**62, ()).item()))
