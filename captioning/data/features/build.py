"""Compute the features of photos once and store them (`captioning.data.features.store`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from captioning.config.ranges import Device, NumWorkers, PositiveInt
from captioning.data.features.extraction import (
    Extraction,
    Kind,
    Load,
    Photo,
    Precision,
    Records,
)
from captioning.data.features.index import INDEX_NAME, LOCK_NAME, FeatureIndex, load_index
from captioning.data.features.store import (
    FeatureStore,
    absolute,
    hash_file,
    known_digest,
    record_key,
)
from captioning.data.features.writer import FeatureWriter, check_space
from captioning.runtime.devices import chosen_device
from captioning.runtime.file_lock import locked
from captioning.types import Box
from captioning.vision.backbones import Backbone
from captioning.vision.photo_places import photo_stamp
from captioning.vision.photos import load_rgb

__all__ = ["FeatureStore", "ensure_features", "store_folder"]

Elsewhere = Callable[[Sequence[Photo]], Iterator[Records]]
"""Function that yields the records of photos in order, batch by batch."""


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """Records and path entries that a store lacks."""

    missing: list[Photo]
    paths: dict[str, tuple[int, int, str]]


def store_folder(
    folder: str | Path, *, backbone: Backbone, kind: Kind, precision: Precision = "float32"
) -> Path:
    """Return the folder of a backbone's features: one store per kind and photo size."""
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
    batch_size: PositiveInt | None = None,
    chunk_size: PositiveInt = 512,
    num_workers: NumWorkers | None = None,
    precision: Precision = "float32",
    device: Device | torch.device = "auto",
    load: Load | None = None,
    progress: bool = True,
    elsewhere: Elsewhere | None = None,
) -> FeatureStore:
    """Return the features of all ``paths``; compute missing features first.

    The backbone makes photos square, usually by resizing without keeping their proportions, so that
    the grid covers all of them. Features are saved after every ``chunk_size`` photos: a killed run
    resumes from there. Two runs that build the same store take turns.

    Args:
        paths: photo files; repeats are allowed.
        backbone: the encoder; it is not changed.
        folder: parent of all stores, usually ``cache/features``.
        kind: ``"grid"`` (h*w cells), or ``"regions"``: the whole photo, then its boxes.
        boxes: boxes of each path for ``"regions"``, in pixels of the file.
        max_boxes: the first so many boxes of a photo are used.
        batch_size: photos through the network at once, on the CPU in each worker; None for 4 there,
            as small batches stay in its cache, and 64 on a GPU.
        chunk_size: photos between two commits.
        num_workers: threads that decode photos and, on the CPU, run the network; None for as many
            as torch would use (cores, or ``OMP_NUM_THREADS``).
        precision: ``"bfloat16"`` runs the convolutions in it, about twice as fast on CPUs that
            support it, and keeps the features in a separate store.
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
        planned = _open_index(target, backbone, kind)
        plan = _plan(planned, boxes_by_path, workers, bars)
        if plan.missing or plan.paths:
            with locked(target / LOCK_NAME, subject=str(target), notify=bars.console.print):
                index = _open_index(target, backbone, kind)
                if _have_changed(planned, index):  # by another run, waited for or not
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


def _write(
    batches: Iterator[Records],
    writer: FeatureWriter,
    photos: Sequence[Photo],
    chunk_size: int,
    bars: Progress,
) -> None:
    """Append the records of all batches, shard by shard."""
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


def _boxes_by_path(
    paths: Sequence[str | Path],
    boxes: Sequence[Sequence[Box]] | None,
    kind: Kind,
    max_boxes: int,
) -> dict[str, tuple[Box, ...] | None]:
    """Return boxes by absolute path; None for grid features."""
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
            raise ValueError(f"{path}: one photo has two different lists of boxes")
    return boxes_by_path


def _open_index(target: Path, backbone: Backbone, kind: Kind) -> FeatureIndex:
    """Open the store's index, or create an empty one; raise an error for another backbone's."""
    fresh = FeatureIndex(
        identity=backbone.identity, kind=kind, image_size=backbone.image_size, dim=backbone.dim
    )
    if not (target / INDEX_NAME).exists():
        return fresh
    index = load_index(target)
    for name in ("identity", "kind", "image_size", "dim"):
        if getattr(index, name) != getattr(fresh, name):
            raise ValueError(
                f"{target} holds features with {name} {getattr(index, name)!r}, but this run needs "
                f"{getattr(fresh, name)!r}; move the folder away or choose another"
            )
    return index


def _have_changed(before: FeatureIndex, now: FeatureIndex) -> bool:
    """Whether a store has other records or paths than when its index was read first."""
    return before.positions.keys() != now.positions.keys() or before.paths != now.paths


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
