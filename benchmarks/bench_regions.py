"""How many pairs a second region augmentation makes on one core, and in how much memory.

python benchmarks/bench_regions.py [--num 400] [--size 224] [--suffix jpg]

Photos of noise and shapes are drawn to a folder first. "paste" is blending alone, of patches from
decoded photos; "render" is all that a process does for a picture: reading the photos, pasting and
writing the file. Both are processor seconds of this process.
"""

from __future__ import annotations

import argparse
import platform
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from augmentation.regions.paste import Blending, Paste, paste
from augmentation.regions.proposal import Proposal
from augmentation.regions.rendering import PictureFormat, Renderer
from captioning.types import Region


def draw_photos(folder: Path, number: int, size: int, draw: np.random.Generator) -> list[Path]:
    """Photos of coarse noise, as JPEG of quality 90."""
    paths = [folder / f"{n}.jpg" for n in range(number)]
    for path in paths:
        coarse = draw.integers(0, 256, (size // 8, size // 8, 3), np.uint8)
        Image.fromarray(coarse).resize((size, size)).save(path, quality=90)
    return paths


def random_box(size: int, draw: np.random.Generator) -> tuple[float, float, float, float]:
    """A box of a third of the photo's sides and more."""
    width, height = draw.integers(size // 3, size // 2, 2)
    x, y = draw.integers(0, size - width), draw.integers(0, size - height)
    return (float(x), float(y), float(x + width), float(y + height))


def make_proposals(paths: list[Path], num: int, size: int) -> list[Proposal]:
    """One paste a picture, between photos drawn at random."""
    draw, found = np.random.default_rng(0), []
    for number in range(num):
        target, source = (paths[n] for n in draw.integers(0, len(paths), 2))
        boxes = random_box(size, draw), random_box(size, draw)
        move = Paste(source=source, source_box=boxes[0], target_box=boxes[1], label="dog")
        found.append(
            Proposal(
                name=f"p{number}",
                image_id=target.stem,
                image_path=target,
                before=("A cat.",),
                pastes=(move,),
                captions=("A dog.",),
                regions=(Region(box=boxes[1], label="dog"),),
                notes={},
            )
        )
    return found


def peak() -> float:
    """Most memory that this process has held, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(folder: Path, num: int, size: int, suffix: str) -> None:
    """Print the rates."""
    paths = draw_photos(folder, 300, size, np.random.default_rng(1))
    proposals = make_proposals(paths, num, size)
    blending = Blending()
    photos = {path: Image.open(path).convert("RGB") for path in paths}
    pictures = {path: np.asarray(photo) for path, photo in photos.items()}
    start = time.process_time()
    for one in proposals:
        sources = [photos[move.source] for move in one.pastes]
        paste(pictures[one.image_path], one.pastes, sources, blending=blending)
    print(f"paste:  {num / (time.process_time() - start):7.0f} pairs/s")
    form = PictureFormat(blending=blending, suffix=suffix)
    renderer = Renderer(folder=folder / "out", form=form)
    renderer.record(proposals[0])
    wall, start, before = time.perf_counter(), time.process_time(), peak()
    for one in proposals:
        renderer.record(one)
    spent = time.process_time() - start
    print(f"render: {num / spent:7.0f} pairs/s of processor time, {suffix}, {size} pixels")
    print(f"        {num / (time.perf_counter() - wall):7.0f} pairs/s by the clock, disk included")
    print(f"memory: {peak():.0f} MiB at most, {peak() - before:.0f} MiB more than at the start")


def main() -> None:
    """Measure as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num", type=int, default=400)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--suffix", choices=("jpg", "png"), default="jpg")
    given = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), given.num, given.size, given.suffix)


if __name__ == "__main__":
    main()
