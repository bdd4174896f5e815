"""Random distortions of photos, with the kinds and strengths of BLIP's fine-tuning."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageOps

GREY = (128, 128, 128)
SHEAR = 0.15  # pixels a pixel
SHIFT = 5  # pixels
ANGLE = 15  # degrees

Distortion = Callable[[Image.Image, int], Image.Image]


def _moved(image: Image.Image, numbers: tuple[float, ...]) -> Image.Image:
    method, resample = Image.Transform.AFFINE, Image.Resampling.BILINEAR
    return image.transform(image.size, method, numbers, resample=resample, fillcolor=GREY)


def _rotated(image: Image.Image, sign: int) -> Image.Image:
    return image.rotate(sign * ANGLE, resample=Image.Resampling.BILINEAR, fillcolor=GREY)


# Ten kinds there, drawn alike. At their strength (5 of 10) brightness and sharpness are multiplied
# with 1, so that with the identity three kinds change nothing.
KINDS: tuple[Distortion, ...] = (
    *(3 * [lambda image, sign: image]),
    lambda image, sign: ImageOps.autocontrast(image),
    lambda image, sign: ImageOps.equalize(image),
    lambda image, sign: _moved(image, (1, sign * SHEAR, 0, 0, 1, 0)),
    lambda image, sign: _moved(image, (1, 0, 0, sign * SHEAR, 1, 0)),
    lambda image, sign: _moved(image, (1, 0, sign * SHIFT, 0, 1, 0)),
    lambda image, sign: _moved(image, (1, 0, 0, 0, 1, sign * SHIFT)),
    _rotated,
)


def distorted(image: Image.Image, count: int, rng: np.random.Generator) -> Image.Image:
    """A photo after ``count`` distortions, each done with probability one half.

    Args:
        image: RGB, of the size that the network sees: strengths are in its pixels.
        count: draws of a kind; 2 in BLIP's fine-tuning.
        rng: draws kinds, signs and whether each distortion is done.
    """
    for kind in rng.integers(len(KINDS), size=count):
        if rng.random() < 0.5:
            image = KINDS[kind](image, int(rng.choice((-1, 1))))
    return image
