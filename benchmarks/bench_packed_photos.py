"""Benchmark photos in shards against photos in files: reading the dataset, random access.

``python benchmarks/bench_packed_photos.py [PHOTOS] [--copies 12] [--group 100]``

PHOTOS is a folder of JPEG files; without it 2,000 of noise, 224 pixels wide, are drawn. The roster
is read of ``--copies`` times as many photos. All files are in the page cache. Needs pyarrow.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import os
import resource
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from captioning.data.readers.arrow import read_arrow
from captioning.data.readers.webdataset import read_webdataset
from captioning.data.roster import Roster
from captioning.vision.photos import load_rgb

SHARD = 1000  # photos
CAPTION = "A dog runs over the grass."


def draw_photos(folder: Path, number: int = 2000) -> list[Path]:
    """Photos of noise in 28 x 28 fields, with the usual bytes for their size."""
    draw = np.random.default_rng(0)
    paths = []
    for name in range(number):
        fields = draw.integers(0, 256, (28, 28, 3), dtype=np.uint8)
        paths.append(folder / f"{name:06d}.jpg")
        Image.fromarray(fields).resize((224, 224)).save(paths[-1], quality=90)
    return paths


def pack_tar(photos: Sequence[Path], folder: Path, copies: int) -> None:
    """Write tar shards with a photo, a text and a record for each key."""
    total = len(photos) * copies
    for start in range(0, total, SHARD):
        with tarfile.open(folder / f"{start // SHARD:05d}.tar", "w") as shard:
            for number in range(start, min(start + SHARD, total)):
                photo = photos[number % len(photos)].read_bytes()
                record = b'{"caption": "A dog.", "similarity": 0.3, "width": 224, "height": 224}'
                members = {"jpg": photo, "txt": CAPTION.encode(), "json": record}
                for suffix, data in members.items():
                    member = tarfile.TarInfo(f"{number:09d}.{suffix}")
                    member.size = len(data)
                    shard.addfile(member, io.BytesIO(data))


def pack_tables(photos: Sequence[Path], folder: Path, copies: int, *, group: int) -> None:
    """Write Arrow like ``save_to_disk`` if ``group`` is 0, else Parquet with row groups."""
    total = len(photos) * copies
    for start in range(0, total, SHARD):
        chosen = [photos[n % len(photos)] for n in range(start, min(start + SHARD, total))]
        image = [{"bytes": path.read_bytes(), "path": path.name} for path in chosen]
        table = pa.table({"image": image, "caption": [CAPTION] * len(image)})
        if group:
            file = folder / f"train-{start // SHARD:05d}.parquet"
            pq.write_table(table, file, row_group_size=group)
            continue
        name = str(folder / f"train-{start // SHARD:05d}.arrow")
        with pa.OSFile(name, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)


def open_all(paths: Sequence[Path]) -> None:
    """Open and decode photos."""
    for path in paths:
        load_rgb(path)


def photos_a_second(paths: Sequence[Path], processes: int) -> float:
    """Photos per second of worker processes that read all shards in random order.

    Other work on the machine counts little: the time is that of the processes on a processor.
    """
    order = np.random.default_rng(0).permutation(len(paths))
    shares = [[paths[n] for n in order[start::processes]] for start in range(processes)]
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=open_all, args=(share,)) for share in shares]
    before = os.times()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    after = os.times()
    seconds = after[2] + after[3] - before[2] - before[3]  # user's and system's, of children
    return processes * len(paths) / seconds


def rosters(read: Callable[[Path], Roster], folder: Path) -> None:
    """Time and memory of reading a roster, the first time and again."""
    for attempt in ("first", "again"):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.process_time()
        roster = read(folder)
        seconds = time.process_time() - started
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        figures = f"{seconds:5.1f} s of processor, peak memory +{grown:.0f} MiB"
        print(f"  roster of {len(roster):,} photos, {attempt}: {figures}", flush=True)


def main() -> None:
    """Print all measurements."""
    parser = argparse.ArgumentParser(description="Benchmark of photos in shards.")
    parser.add_argument("photos", nargs="?")
    parser.add_argument("--copies", type=int, default=12)
    parser.add_argument("--group", type=int, default=100)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photos = sorted(Path(chosen.photos).glob("*.jpg")) if chosen.photos else draw_photos(folder)
        size = sum(photo.stat().st_size for photo in photos) / len(photos) / 1024
        print(f"{len(photos)} photos of {size:.0f} KiB; load {os.getloadavg()[0]:.1f}")
        tables = partial(read_arrow, name="photos", part="train")
        shards = partial(read_webdataset, name="photos", cache_folder=folder / "cache")
        parquet = partial(pack_tables, group=chosen.group)
        convert = {"convert": True, "cache_folder": folder / "cache"}
        layouts = {
            "webdataset": (pack_tar, lambda place: shards(folder=place)),
            "arrow": (partial(pack_tables, group=0), lambda place: tables(folder=place)),
            "parquet": (parquet, lambda place: tables(folder=place)),
            "converted": (parquet, lambda place: tables(folder=place, **convert)),
        }
        paths = {"files": photos}
        for layout, (pack, read) in layouts.items():
            (folder / layout).mkdir()
            pack(photos, folder / layout, 1)
            paths[layout] = [sample.image_path for sample in read(folder / layout).samples]
        for processes in (1, 2):
            for repeat in range(2):
                speeds = {k: photos_a_second(v, processes) for k, v in paths.items()}
                shown = ", ".join(f"{k} {v:.0f}" for k, v in speeds.items())
                print(f"photos/s, {processes} processes, pass {repeat + 1}: {shown}", flush=True)
        for layout, (pack, read) in layouts.items():
            (folder / f"{layout}-large").mkdir()
            pack(photos, folder / f"{layout}-large", chosen.copies)
            print(layout)
            rosters(read, folder / f"{layout}-large")


if __name__ == "__main__":
    main()
