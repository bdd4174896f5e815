"""Tiny photos with boxes and captions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from captioning.data.roster import Roster, build_roster
from captioning.types import Region, Sample

COLOURS = {"dog": (200, 30, 30), "cat": (30, 200, 30), "bird": (30, 30, 200)}
Boxes = Sequence[tuple[str, tuple[float, float, float, float]]]


def region(label: str, *box: float) -> Region:
    return Region(box=box, label=label)


def photo(path: Path, boxes: Boxes, *, ground: int = 128, size: int = 64) -> Path:
    """A grey photo with a rectangle for each thing."""
    picture = Image.new("RGB", (size, size), (ground, ground, ground))
    pen = ImageDraw.Draw(picture)
    for label, (x1, y1, x2, y2) in boxes:
        pen.rectangle((x1, y1, x2 - 1, y2 - 1), fill=COLOURS[label])
    picture.save(path)
    return path


def sample(path: Path, caption: str, boxes: Boxes, *, number: int = 0) -> Sample:
    return Sample(
        row=0,
        sample_id=f"{path.stem}#{number}",
        image_id=path.stem,
        image_path=path,
        caption=caption,
        regions=tuple(region(label, *box) for label, box in boxes),
    )


def scenes(folder: Path) -> Roster:
    """Six photos of cats and birds, and three of dogs."""
    samples = []
    for n in range(6):
        boxes = [("cat", (8 + n, 8, 28 + n, 28)), ("bird", (40, 40, 60, 60))]
        path = photo(folder / f"cat{n}.png", boxes, ground=100 + n)
        samples.append(sample(path, "A small white cat sits near a bird.", boxes))
        samples.append(sample(path, "Birds.", boxes, number=1))
    for n in range(3):
        boxes = [("dog", (20, 20 - n, 42, 42))]
        path = photo(folder / f"dog{n}.png", boxes, ground=180)
        samples.append(sample(path, "A dog on grass.", boxes))
    return build_roster("scenes", samples)
