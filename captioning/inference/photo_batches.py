"""Read batches of photos ahead of the model, and skip broken photos."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import torch
from PIL import Image

from captioning.data.batches.dataset import CaptionDataset
from captioning.runtime.work_ahead import done_ahead
from captioning.types import Batch, Box, Region, Sample
from captioning.vision.photos import upright_rgb

Photo = str | Path | Image.Image


@dataclass(frozen=True, kw_only=True)
class PhotoBatch:
    """A batch of photos, with the errors of broken photos.

    Attributes:
        samples: one sample per photo, broken photos included.
        batch: the model's input for readable photos; None if all photos are broken.
        problems: errors of the broken photos, by image id.
    """

    samples: Sequence[Sample]
    batch: Batch | None
    problems: dict[str, str] = field(default_factory=dict)


def photo_samples(
    photos: Sequence[Photo], boxes: Sequence[Sequence[Box]] | None, folder: Path
) -> tuple[list[Sample], list[str]]:
    """Return a sample for each distinct photo, and each photo's image id in order.

    A photo repeated with other boxes becomes another sample with its own image id. The samples'
    captions are ignored.

    Args:
        photos: files, or pictures in memory; repeats are allowed.
        boxes: boxes of each photo; None: no boxes.
        folder: empty folder for temporary copies of pictures in memory.

    Raises:
        TypeError: a photo is neither a file nor a picture.
        ValueError: a picture whose pixel range is unknown.
    """
    samples: dict[str, Sample] = {}
    names = []
    for number, photo in enumerate(photos):
        name, path = _named(photo, number, folder)
        regions = tuple(Region(box=box, label="") for box in boxes[number]) if boxes else ()
        image_id = _free_id(samples, name, path, regions)
        names.append(image_id)
        if image_id not in samples:
            identity = {"sample_id": image_id, "image_id": image_id, "image_path": path}
            sample = Sample(row=len(samples), caption="photo", regions=regions, **identity)
            samples[image_id] = sample
    return list(samples.values()), names


def _free_id(
    samples: Mapping[str, Sample], name: str, path: Path, regions: tuple[Region, ...]
) -> str:
    """Return an image id for a photo with these regions: its name, or its name with a number."""
    ids = (f"{name}#{number}" if number else name for number in count())
    return next(
        image_id
        for image_id in ids
        if (known := samples.get(image_id)) is None
        or (known.image_path, known.regions) == (path, regions)
    )


def photo_name(photo: Photo, number: int) -> str:
    """The name of a photo: its file, or the number of a picture in memory."""
    return str(Path(photo)) if isinstance(photo, str | Path) else str(number)


def _named(photo: Photo, number: int, folder: Path) -> tuple[str, Path]:
    """Return the name of a photo and the path of its file."""
    if isinstance(photo, str | Path):
        return photo_name(photo, number), Path(photo)
    if not isinstance(photo, Image.Image):
        raise TypeError(f"photos must be files or Pillow pictures, got {type(photo).__name__}")
    path = folder / f"{number}.bmp"  # quickly written and read, and nothing is lost
    upright_rgb(photo).save(path)
    return photo_name(photo, number), path


def read_batches(
    dataset: CaptionDataset, size: int, *, ahead: int, skips: bool
) -> Iterator[PhotoBatch]:
    """Yield all samples of a dataset in order, in batches without repeated photos.

    Args:
        dataset: a dataset of `photo_samples`.
        size: maximum number of photos per batch.
        ahead: reading threads, one batch each; 0: each batch is read when needed.
        skips: skip broken photos instead of raising their error.

    Raises:
        FileNotFoundError, ValueError: a broken photo, unless skipped.
    """
    blocks = _blocks(dataset.samples, size)
    read = partial(_read, dataset, skips=skips)
    if not ahead:
        yield from map(read, blocks)
        return
    yield from done_ahead(read, blocks, threads=ahead, most_ahead=ahead)


def _blocks(samples: Sequence[Sample], size: int) -> list[list[int]]:
    """Split samples into batches without repeated photos; return the positions in each batch."""
    blocks: list[list[int]] = []
    files: set[Path] = set()
    for position, sample in enumerate(samples):
        if not blocks or len(blocks[-1]) == size or sample.image_path in files:
            blocks.append([])
            files.clear()
        blocks[-1].append(position)
        files.add(sample.image_path)
    return blocks


@torch.inference_mode()
def _read(dataset: CaptionDataset, block: list[int], *, skips: bool) -> PhotoBatch:
    samples = [dataset.samples[position] for position in block]
    try:
        return PhotoBatch(samples=samples, batch=dataset[block])
    except (OSError, ValueError):
        problems = {
            dataset.samples[position].image_id: problem
            for position in block
            if (problem := _problem(dataset, position))
        }
        if not (skips and problems):
            raise
    rest = [p for p, sample in zip(block, samples, strict=True) if sample.image_id not in problems]
    return PhotoBatch(samples=samples, batch=dataset[rest] if rest else None, problems=problems)


def _problem(dataset: CaptionDataset, position: int) -> str:
    """Return why a photo cannot be read, with its name; empty if it is readable."""
    try:
        dataset[[position]]
    except (OSError, ValueError) as error:
        return str(error)
    return ""
