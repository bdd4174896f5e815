"""Batches of photos, read while the model works on those before; broken photos are left out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from PIL import Image

from captioning.data.batches.dataset import CaptionDataset
from captioning.types import Batch, Region, Sample
from captioning.vision.photos import load_rgb, upright_rgb

Box = tuple[float, float, float, float]
Photo = str | Path | Image.Image


@dataclass(frozen=True, kw_only=True)
class PhotoBatch:
    """Some photos.

    Attributes:
        samples: one a photo, broken ones too.
        batch: the model's input of those that can be read; None where there are none.
        problems: what is wrong with the others, by image id.
    """

    samples: Sequence[Sample]
    batch: Batch | None
    problems: dict[str, str] = field(default_factory=dict)


def photo_samples(
    photos: Sequence[Photo], boxes: Sequence[Sequence[Box]] | None, folder: Path
) -> tuple[list[Sample], list[str]]:
    """A sample of each different photo, and the image id of each photo in order.

    The samples' captions are not looked at.

    Args:
        photos: files, or pictures in memory; repeats are allowed.
        boxes: of each photo; None: none.
        folder: an empty one, in which pictures in memory are kept for the time being.

    Raises:
        TypeError: neither file nor picture.
        ValueError: a picture whose pixels have no known range.
    """
    samples: dict[str, Sample] = {}
    names = []
    for number, photo in enumerate(photos):
        name, path = _named(photo, number, folder)
        names.append(name)
        if name in samples:
            continue
        regions = tuple(Region(box=box, label="") for box in boxes[number]) if boxes else ()
        identity = {"sample_id": name, "image_id": name, "image_path": path}
        samples[name] = Sample(row=len(samples), caption="photo", regions=regions, **identity)
    return list(samples.values()), names


def _named(photo: Photo, number: int, folder: Path) -> tuple[str, Path]:
    """The image id of a photo, and its file."""
    if isinstance(photo, str | Path):
        return str(Path(photo)), Path(photo)
    if not isinstance(photo, Image.Image):
        raise TypeError(f"photos must be files or pictures of Pillow: got {type(photo).__name__}")
    path = folder / f"{number}.bmp"  # quickly written and read, and nothing is lost
    upright_rgb(photo).save(path)
    return str(number), path


def read_batches(
    dataset: CaptionDataset, size: int, *, ahead: int, skips: bool
) -> Iterator[PhotoBatch]:
    """All samples of a data set in order, in batches.

    Args:
        dataset: of `photo_samples`.
        size: photos of a batch.
        ahead: threads that read, each a batch; 0: batches are read when they are needed.
        skips: whether broken photos are left out.

    Raises:
        FileNotFoundError, ValueError: a broken photo that is not left out.
    """
    positions = range(len(dataset))
    blocks = [[*positions[start : start + size]] for start in range(0, len(dataset), size)]
    read = partial(_read, dataset, skips=skips)
    if not ahead:
        yield from map(read, blocks)
        return
    coming: deque[Future[PhotoBatch]] = deque()
    pool = ThreadPoolExecutor(ahead)
    try:
        for block in blocks:
            coming.append(pool.submit(read, block))
            if len(coming) > ahead:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


@torch.inference_mode()
def _read(dataset: CaptionDataset, block: list[int], *, skips: bool) -> PhotoBatch:
    samples = [dataset.samples[position] for position in block]
    try:
        return PhotoBatch(samples=samples, batch=dataset[block])
    except (OSError, ValueError):
        problems = {sample.image_id: problem for sample in samples if (problem := _problem(sample))}
        if not (skips and problems):
            raise
    rest = [p for p, sample in zip(block, samples, strict=True) if sample.image_id not in problems]
    return PhotoBatch(samples=samples, batch=dataset[rest] if rest else None, problems=problems)


def _problem(sample: Sample) -> str:
    """Why a photo cannot be opened, with its name; empty if it can."""
    try:
        load_rgb(sample.image_path)
    except (OSError, ValueError) as error:
        return str(error)
    return ""
