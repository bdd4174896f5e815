"""Benchmark the import of features at the size of COCO: time, memory, and cost of the index.

``python benchmarks/bench_feature_import.py [--images 120000] [--regions 36] [--dim 32]``

First a store is filled with the index as it was (rewritten whole after every block) and as it is (a
line appended), the features being the same; then a bottom-up TSV is imported, whose time must grow
with its size. Peak memory is that of a process that imports alone.
"""

from __future__ import annotations

import argparse
import base64
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from captioning.data.features.importing import import_features
from captioning.data.features.index import FeatureIndex
from captioning.data.features.store import FeatureStore
from captioning.data.features.writer import FeatureWriter
from captioning.runtime.files import write_json

BLOCK = 512


def fill_old(folder: Path, features: np.ndarray, keys: list[str]) -> None:
    """Fill a store in its first format: rewrite the whole index after every block."""
    content: dict[str, object] = {"format": 1, "identity": "x", "kind": "imported"}
    content |= {"image_size": 0, "dim": features.shape[1], "paths": {}}
    records: dict[str, tuple[int, int]] = {}
    rows, pending = len(features), {}
    with (folder / "features.bin").open("ab") as file:
        for number, key in enumerate(keys, start=1):
            file.write(features.data)
            pending[key] = ((number - 1) * rows, rows)
            if number % BLOCK == 0 or number == len(keys):
                file.flush()
                os.fsync(file.fileno())
                records.update(pending)
                pending = {}
                write_json(folder / "index.json", {**content, "records": records}, indent=None)


def fill_new(folder: Path, features: np.ndarray, keys: list[str]) -> None:
    """Fill a store in its present format."""
    index = FeatureIndex(identity="x", kind="imported", image_size=0, dim=features.shape[1])
    with FeatureWriter(folder=folder, index=index) as writer:
        for number, key in enumerate(keys, start=1):
            writer.append(key, features)
            if number % BLOCK == 0:
                writer.commit()
        writer.commit()


def seconds(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def write_tsv(path: Path, images: int, regions: int, dim: int) -> None:
    """Write features in the bottom-up attention layout; they repeat after 64 images."""
    draw = np.random.default_rng(0)
    corners = np.sort(draw.uniform(0, 400, (regions, 2, 2)), axis=1).reshape(regions, 4)
    boxes = base64.b64encode(corners.astype("<f4").tobytes())
    values = draw.normal(size=(64, regions, dim)).astype("<f4")
    coded = [base64.b64encode(value.tobytes()) for value in values]
    with path.open("wb") as file:
        for number in range(images):
            cells = (b"%d" % number, b"640", b"480", b"%d" % regions, boxes, coded[number % 64])
            file.write(b"\t".join(cells) + b"\n")


def import_alone(source: Path, folder: Path) -> None:
    """Import in a separate process, and print its measurements."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    taken = seconds(lambda: import_features([source], folder=folder))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    opened = seconds(lambda: FeatureStore.open(folder))
    store = FeatureStore.open(folder)
    where = np.random.default_rng(0).integers(0, len(store), (100, 50))
    read = seconds(lambda: [store.read(positions) for positions in where]) * 10
    again = seconds(lambda: [store.read(positions) for positions in where]) * 10
    size = sum(file.stat().st_size for file in folder.iterdir()) / 2**20
    print(
        f"import of {len(store):7,} images: {taken:6.1f} s ({len(store) / taken:6,.0f} images/s), "
        f"{size:5.0f} MiB, memory {before:.0f} -> {peak:.0f} MiB; opened in {opened:.2f} s; "
        f"50 records read in {read:.2f} ms with their checksums, {again:.2f} ms without",
        flush=True,
    )


def compare_index(images: int, regions: int, dim: int, folder: Path) -> None:
    """Time both formats for a quarter, a half and all images, and the features alone."""
    features = np.ones((regions, dim), dtype=np.float16)
    for number in (images // 4, images // 2, images):
        keys = [f"{key:040x}" for key in range(number)]
        times = {}
        for name, fill in (("rewritten", fill_old), ("appended", fill_new)):
            target = folder / f"{name}{number}"
            target.mkdir()
            times[name] = seconds(lambda t=target, f=fill, k=keys: f(t, features, k))
        log = json.dumps({name: round(value, 1) for name, value in times.items()})
        print(f"store of {number:7,} images, index rewritten or appended, s: {log}", flush=True)


def main() -> None:
    """Print both comparisons."""
    parser = argparse.ArgumentParser(description="Benchmark of imports.")
    parser.add_argument("--images", type=int, default=120_000)
    parser.add_argument("--regions", type=int, default=36)
    parser.add_argument("--dim", type=int, default=32)
    chosen = parser.parse_args()
    sizes = (chosen.regions, chosen.dim)
    print(f"{sizes[0]} regions of {sizes[1]} values; load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        compare_index(chosen.images, *sizes, Path(name))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in (chosen.images // 4, chosen.images // 2, chosen.images):
            write_tsv(folder / "f.tsv", number, *sizes)
            process = multiprocessing.get_context("spawn").Process(
                target=import_alone, args=(folder / "f.tsv", folder / f"store{number}")
            )
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit(process.exitcode)


if __name__ == "__main__":
    main()
