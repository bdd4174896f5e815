"""Benchmark BLIP's training transform at 384 pixels against the earlier version with Pillow.

``python benchmarks/bench_transforms.py [PHOTO_FOLDER] [--photos 100] [--rounds 5]``

The former way resizes, distorts and normalises on the processor, by Pillow and in floats. Ours
resizes by torch on bytes, distorts bytes, and leaves the rest to the device. One process, one
thread; rounds alternate. Without a folder the photos are smooth noise of 500 x 375 pixels.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from captioning.data.batches.transforms import TrainTransform
from captioning.vision.blip import MEAN, STD
from captioning.vision.photos import load_rgb

SIDE, SMALLEST, GREY = 384, 0.5, (128, 128, 128)


def moved(numbers: tuple[float, ...]) -> Callable[[Image.Image], Image.Image]:
    """Apply the affine transform with Pillow."""
    options = {"resample": Image.Resampling.BILINEAR, "fillcolor": GREY}
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, numbers, **options)


FORMER_KINDS = (
    *(3 * [lambda image: image]),
    ImageOps.autocontrast,
    ImageOps.equalize,
    moved((1, 0.15, 0, 0, 1, 0)),
    moved((1, 0, 0, 0.15, 1, 0)),
    moved((1, 0, 5, 0, 1, 0)),
    moved((1, 0, 0, 0, 1, 5)),
    lambda image: image.rotate(15, resample=Image.Resampling.BILINEAR, fillcolor=GREY),
)


def former(image: Image.Image, rng: np.random.Generator) -> Tensor:
    """Former implementation of the transform."""
    scale = np.sqrt(rng.uniform(SMALLEST, 1))
    width, height = image.width * scale, image.height * scale
    left, top = rng.uniform(0, image.width - width), rng.uniform(0, image.height - height)
    mirrored = rng.random() < 0.5
    box = (left, top, min(left + width, image.width), min(top + height, image.height))
    image = image.resize((SIDE, SIDE), Image.Resampling.BICUBIC, box=box)
    for kind in rng.integers(len(FORMER_KINDS), size=2):
        if rng.random() < 0.5:
            image = FORMER_KINDS[kind](image)
    pixels = torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1)
    mean, std = (torch.tensor(values).view(3, 1, 1) * 255 for values in (MEAN, STD))
    normal = (pixels.to(torch.float32) - mean) / std
    return normal.flip(2) if mirrored else normal


def noise_photos(folder: Path, number: int) -> list[Path]:
    """Smooth noise as JPEG files."""
    rng, paths = np.random.default_rng(0), []
    for index in range(number):
        small = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)
        path = folder / f"{index}.jpg"
        Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC).save(path, quality=90)
        paths.append(path)
    return paths


def photos_a_second(make: Callable[[], list[Tensor]], number: int) -> float:
    """Photos per second of one pass."""
    started = time.perf_counter()
    torch.stack(make())
    return number / (time.perf_counter() - started)


def compare(paths: list[Path], rounds: int) -> None:
    """Print photos per second of both transforms, without and with decoding."""
    images = [load_rgb(path) for path in paths]
    ours = TrainTransform(
        backbone=SimpleNamespace(image_size=SIDE), smallest_crop=SMALLEST, flip=True, distortions=2
    )
    keys = [(0, row) for row in range(len(paths))]

    def former_photo(image: Image.Image, key: tuple[int, int]) -> Tensor:
        return former(image, np.random.default_rng(key))

    ways: dict[str, Callable[[], list[Tensor]]] = {
        "former, transform alone": lambda: list(map(former_photo, images, keys)),
        "ours, transform alone": lambda: [
            ours.seeded(key)(image) for image, key in zip(images, keys, strict=True)
        ],
        "former, with decoding": lambda: [
            former_photo(load_rgb(path), key) for path, key in zip(paths, keys, strict=True)
        ],
        "ours, with decoding": lambda: [
            ours.seeded(key)(load_rgb(path, smallest_side=ours.smallest_side))
            for path, key in zip(paths, keys, strict=True)
        ],
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            rates[name].append(photos_a_second(way, len(paths)))
    for name, values in rates.items():
        print(f"{name:26s} {statistics.median(values):7.0f} photos/s")
    for what in ("transform alone", "with decoding"):
        pairs = zip(rates[f"ours, {what}"], rates[f"former, {what}"], strict=True)
        print(f"{what}: {statistics.median(a / b for a, b in pairs):.2f} times as fast")


def main() -> None:
    """Read the arguments and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="folder of JPEGs; default: noise")
    parser.add_argument("--photos", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.folder is not None:
        compare(sorted(options.folder.rglob("*.jpg"))[: options.photos], options.rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(noise_photos(Path(folder), options.photos), options.rounds)


if __name__ == "__main__":
    main()
