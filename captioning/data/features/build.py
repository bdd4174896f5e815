"""Compute the features of photos once, and keep them (`captioning.data.features.store`)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from torch import Tensor

from captioning.data.features.index import INDEX_NAME, LOCK_NAME, FeatureIndex, load_index
from captioning.data.features.space import check_space
from captioning.data.features.store import (
    Box,
    FeatureStore,
    absolute,
    hash_file,
    known_digest,
    record_key,
)
from captioning.data.features.writer import FeatureWriter
from captioning.data.file_lock import locked
from captioning.ranges import Device, NumWorkers, PositiveInt
from captioning.vision.backbones import Backbone
from captioning.vision.boxes import pool_regions, scale_boxes
from captioning.vision.photo_places import photo_stamp
from captioning.vision.photos import load_rgb
from captioning.vision.placement import chosen_device, full_precision

__all__ = ["FeatureStore", "ensure_features", "store_folder"]

Kind = Literal["grid", "regions"]
Precision = Literal["float32", "bfloat16"]
Load = Callable[[Path], Image.Image]
Records = list[np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Photo:
    """One photo whose features are to be computed.

    Attributes:
        path: of its file.
        key: of its record.
        boxes: in pixels; none for grid features.
    """

    path: Path
    key: str
    boxes: tuple[Box, ...]


Elsewhere = Callable[[Sequence[Photo]], Iterator[Records]]
"""Gives the records of photos in order, some at a time."""


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What is missing from a store: records, and entries of paths."""

    missing: list[Photo]
    paths: dict[str, tuple[int, int, str]]


def store_folder(
    folder: str | Path, *, backbone: Backbone, kind: Kind, precision: Precision = "float32"
) -> Path:
    """Where the features of a backbone lie below ``folder``: one store per kind and photo size."""
    if precision not in ("float32", "bfloat16"):
        raise ValueError(f"precision must be 'float32' or 'bfloat16': got {precision!r}")
    name = f"{backbone.identity}-{kind}-{backbone.image_size}px"
    return Path(folder) / (name if precision == "float32" else f"{name}-{precision}")


def ensure_features(
    paths: Sequence[str | Path],
    *,
    backbone: Backbone,
    folder: str | Path,
    kind: Kind = "grid",
    boxes: Sequence[Sequence[Box]] | None = None,
    max_boxes: PositiveInt = 36,
    batch_size: PositiveInt = 4,
    chunk_size: PositiveInt = 512,
    num_workers: NumWorkers | None = None,
    precision: Precision = "float32",
    device: Device | torch.device = "auto",
    load: Load | None = None,
    progress: bool = True,
    elsewhere: Elsewhere | None = None,
) -> FeatureStore:
    """The features of all ``paths``; computes those that are missing.

    The backbone makes photos square, usually by resizing without keeping their proportions, so that
    the grid covers all of them. Features are saved after every ``chunk_size`` photos: a killed run
    resumes from there. Two runs that build the same store take turns.

    Args:
        paths: photo files; repeats are allowed.
        backbone: the encoder; it is not changed.
        folder: parent of all stores, usually ``cache/features``.
        kind: ``"grid"`` (h*w cells), or ``"regions"``: the whole photo, then its boxes.
        boxes: for ``"regions"``, the boxes of each path, in pixels of the file.
        max_boxes: the first so many boxes of a photo are used.
        batch_size: photos through the network at once, in each worker; small batches stay in the
            processor's cache. 64 is better on a GPU.
        chunk_size: photos between two commits.
        num_workers: threads that decode photos and run the network; None for as many as torch
            would use (cores, or ``OMP_NUM_THREADS``).
        precision: ``"bfloat16"`` runs the convolutions in it, about twice as fast where the
            processor knows it, and keeps the features in a store of their own.
        device: ``"auto"`` takes a GPU if there is one.
        load: reads a photo as an RGB image; None for `captioning.vision.photos.load_rgb`.
        progress: show a progress bar.
        elsewhere: gives the records of photos in order, some at a time, from other processes with
            an `Extraction` of the same settings; each portion is saved before the next is taken.

    Raises:
        FileNotFoundError: a photo does not exist.
        ValueError: a photo that cannot be read, wrong boxes, features that are not finite, or a
            store of another backbone in the same place.
        OSError: not enough space.
    """
    boxes_by_path = _boxes_by_path(paths, boxes, kind, max_boxes)
    target = store_folder(folder, backbone=backbone, kind=kind, precision=precision)
    workers = num_workers or torch.get_num_threads()
    target.mkdir(parents=True, exist_ok=True)
    options = (load or load_rgb, chosen_device(device), precision)
    with _progress(progress) as bars:
        plan = _plan(_open_index(target, backbone, kind), boxes_by_path, workers, bars)
        if plan.missing or plan.paths:
            with locked(
                target / LOCK_NAME, subject=str(target), notify=bars.console.print
            ) as waited:
                index = _open_index(target, backbone, kind)
                if waited:
                    plan = _plan(index, boxes_by_path, workers, bars)
                _check_space(target, backbone, plan.missing, bars)
                if elsewhere is None:
                    run = Extraction(backbone, kind, *options)
                    batches = run.in_batches(plan.missing, batch_size, workers)
                else:
                    batches, chunk_size = elsewhere(plan.missing), 1
                with FeatureWriter(folder=target, index=index) as writer:
                    writer.add_paths(plan.paths)
                    _write(batches, writer, plan.missing, chunk_size, bars)
    store = FeatureStore.open(target)
    if kind == "regions":
        store.remember_boxes(
            {
                path: photo_boxes
                for path, photo_boxes in boxes_by_path.items()
                if photo_boxes is not None
            }
        )
    return store


def grid_features(backbone: Backbone, pixels: Tensor, precision: Precision) -> Tensor:
    """What a store keeps of photos, before it is rounded to ``float16``.

    Args:
        backbone: on the photos' device.
        pixels: ``(N, 3, H, W) uint8``.
        precision: see `ensure_features`.

    Returns:
        ``(N, h*w, D)``.
    """
    dtype = {"float32": None, "bfloat16": torch.bfloat16}[precision]
    with torch.autocast(pixels.device.type, dtype=dtype, enabled=dtype is not None):
        return backbone.grid(backbone.normalise(pixels))


class Extraction:
    """Photos through a backbone, each batch in a thread of its own.

    One torch thread a batch and several batches at once beats several threads in one batch: the
    threads never wait for each other, least of all on a machine that others use too.
    """

    def __init__(
        self, backbone: Backbone, kind: Kind, load: Load, device: torch.device, precision: Precision
    ) -> None:
        self.backbone = backbone.for_inference(device)
        self.kind, self.device, self.load = kind, device, load
        self.precision: Precision = precision

    def features(self, batch: Sequence[Photo]) -> Records:
        """The records ``(R, D) float16`` of some photos."""
        torch.set_num_threads(1)  # of this thread; `_in_threads` restores what it was outside
        decoded = [self._decode(photo) for photo in batch]
        with torch.inference_mode():
            pixels = torch.stack([pixels for pixels, _ in decoded]).to(self.device)
            grid = grid_features(self.backbone, pixels, self.precision)
            if self.kind == "grid":
                pooled = list(grid)
            else:
                pooled = pool_regions(
                    grid, self.backbone.grid_size, [boxes for _, boxes in decoded]
                )
            records = [features.to(torch.float16).cpu().numpy() for features in pooled]
        return [_finite(photo, record) for photo, record in zip(batch, records, strict=True)]

    def in_batches(
        self, photos: Sequence[Photo], batch_size: int, workers: int
    ) -> Iterator[Records]:
        """The records of photos in order, batch by batch, with several batches at once."""
        batches = [photos[n : n + batch_size] for n in range(0, len(photos), batch_size)]
        with full_precision():
            yield from _in_threads(self.features, batches, workers)

    def _decode(self, photo: Photo) -> tuple[Tensor, Tensor]:
        """Pixels ``(3, H, W) uint8`` and boxes ``(n, 4)`` in shares of the photo."""
        image = self.load(photo.path)
        boxes = scale_boxes(photo.boxes, image.width, image.height, str(photo.path))
        pixels = np.array(self.backbone.fitted(image), dtype=np.uint8)
        return torch.from_numpy(pixels).permute(2, 0, 1), boxes


def _write(
    batches: Iterator[Records],
    writer: FeatureWriter,
    photos: Sequence[Photo],
    chunk_size: int,
    bars: Progress,
) -> None:
    """Append the records of all batches, chunk by chunk."""
    started, since_commit, rest = time.perf_counter(), 0, iter(photos)
    total = len(photos)
    task = bars.add_task("features", total=total, visible=total > 0)
    for records in batches:
        for record in records:
            writer.append(next(rest).key, record)
        since_commit += len(records)
        if since_commit >= chunk_size:
            writer.commit()
            since_commit = 0
        bars.advance(task, len(records))
    writer.commit()
    seconds = time.perf_counter() - started
    if total:
        bars.console.print(
            f"features of {total} photos in {seconds:.1f} s ({total / seconds:.1f} photos/s)"
        )


def _in_threads(
    work: Callable[[Sequence[Photo]], Records], batches: Sequence[Sequence[Photo]], workers: int
) -> Iterator[Records]:
    """Results in order; a bounded number of batches is worked on ahead."""
    torch_threads = torch.get_num_threads()
    ahead: deque[Future[Records]] = deque()
    pool = ThreadPoolExecutor(workers)
    try:
        for batch in batches:
            ahead.append(pool.submit(work, batch))
            if len(ahead) > 3 * workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(torch_threads)


def _boxes_by_path(
    paths: Sequence[str | Path],
    boxes: Sequence[Sequence[Box]] | None,
    kind: Kind,
    max_boxes: int,
) -> dict[str, tuple[Box, ...] | None]:
    """Boxes by absolute path, None for grid features."""
    if kind not in ("grid", "regions"):
        raise ValueError(f"kind must be 'grid' or 'regions': got {kind!r}")
    if kind == "grid":
        return dict.fromkeys(absolute(path) for path in paths)
    if boxes is None or len(boxes) != len(paths):
        got = "none" if boxes is None else str(len(boxes))
        raise ValueError(f"region features need boxes for each of {len(paths)} photos: got {got}")
    boxes_by_path: dict[str, tuple[Box, ...] | None] = {}
    for path, photo_boxes in zip(paths, boxes, strict=True):
        used_boxes = tuple(
            (float(x1), float(y1), float(x2), float(y2))
            for x1, y1, x2, y2 in photo_boxes[:max_boxes]
        )
        if boxes_by_path.setdefault(absolute(path), used_boxes) != used_boxes:
            raise ValueError(f"{path}: two different lists of boxes for one photo")
    return boxes_by_path


def _open_index(target: Path, backbone: Backbone, kind: Kind) -> FeatureIndex:
    """The store's index, or an empty one; another backbone's is an error."""
    fresh = FeatureIndex(
        identity=backbone.identity, kind=kind, image_size=backbone.image_size, dim=backbone.dim
    )
    if not (target / INDEX_NAME).exists():
        return fresh
    index = load_index(target)
    for name in ("identity", "kind", "image_size", "dim"):
        if getattr(index, name) != getattr(fresh, name):
            raise ValueError(
                f"{target}: holds features with {name} {getattr(index, name)!r}, wanted are "
                f"{getattr(fresh, name)!r}; move that folder away or choose another"
            )
    return index


def _plan(
    index: FeatureIndex,
    boxes_by_path: dict[str, tuple[Box, ...] | None],
    num_workers: int,
    bars: Progress,
) -> _Plan:
    """Hash new and changed photos, and list the photos without features."""
    digests = {path: known_digest(index, path) for path in boxes_by_path}
    new = [path for path, digest in digests.items() if digest is None]
    entries: dict[str, tuple[int, int, str]] = {}
    task = bars.add_task("checking photos", total=len(new), visible=bool(new))
    with ThreadPoolExecutor(max(1, num_workers)) as pool:
        for path, entry in zip(new, pool.map(_entry, new), strict=True):
            entries[path], digests[path] = entry, entry[2]
            bars.advance(task)
    missing: dict[str, Photo] = {}
    for path, boxes in boxes_by_path.items():
        key = record_key(digests[path] or "", boxes)
        if key not in index.positions and key not in missing:
            missing[key] = Photo(path=Path(path), key=key, boxes=boxes or ())
    return _Plan(missing=list(missing.values()), paths=entries)


def _entry(path: str) -> tuple[int, int, str]:
    try:
        return *photo_stamp(path), hash_file(Path(path))
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"photo {path} does not exist; check the data folder (CAPTIONING_DATA) and the "
            "annotations, or run: captioning prepare data=NAME"
        ) from error


def _finite(photo: Photo, features: np.ndarray) -> np.ndarray:
    if not np.isfinite(features).all():
        raise ValueError(
            f"{photo.path}: its features are not finite in float16 (NaN or beyond 65504); check "
            "the weights of the backbone, and that the photo opens"
        )
    return features


def _check_space(target: Path, backbone: Backbone, missing: list[Photo], bars: Progress) -> None:
    rows = sum(1 + len(photo.boxes) if photo.boxes else backbone.num_cells for photo in missing)
    if missing:
        check_space(target, rows * backbone.dim * 2, len(missing), bars.console.print)


def _progress(shown: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        disable=not shown,
    )
