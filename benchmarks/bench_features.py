"""Benchmark feature extraction and reading against a plain loop, in one run.

``python benchmarks/bench_features.py PHOTO_FOLDER [--photos 128] [--rounds 3]``

The plain loop decodes and runs batches of 32 in channels-last order in one thread of Python, with
torch's own number of threads. Rounds alternate, so that a machine in use by others is fair to both.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from captioning.data.features.build import ensure_features
from captioning.vision.backbones import Backbone, build_backbone
from captioning.vision.photos import load_rgb


def plain(paths: list[Path], backbone: Backbone) -> np.ndarray:
    """Simple implementation of the feature extraction."""
    batches = []
    side = (backbone.image_size, backbone.image_size)
    with torch.inference_mode():
        for start in range(0, len(paths), 32):
            images = [load_rgb(path).resize(side) for path in paths[start : start + 32]]
            pixels = torch.from_numpy(np.stack([np.asarray(image) for image in images]))
            grid = backbone.grid(backbone.normalise(pixels.permute(0, 3, 1, 2)))
            batches.append(grid.half().numpy())
    return np.concatenate(batches)


def ours(paths: list[Path], backbone: Backbone, precision: str) -> np.ndarray:
    """Extract features into an empty store, including hashing and writing."""
    with tempfile.TemporaryDirectory() as folder:
        store = ensure_features(
            paths, backbone=backbone, folder=folder, precision=precision, progress=False
        )
        return store.read(store.positions(paths))[0].numpy()


def read_milliseconds(paths: list[Path], backbone: Backbone) -> float:
    """Median milliseconds to read 50 random records."""
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        store = ensure_features(paths, backbone=backbone, folder=folder, progress=False)
        times = []
        for _ in range(50):
            positions = draw.integers(0, len(store), 50)
            started = time.perf_counter()
            store.read(positions)
            times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times)


def main() -> None:
    """Print photos/s of both, their ratio, the feature difference and reading times."""
    parser = argparse.ArgumentParser(description="Benchmark of feature extraction.")
    parser.add_argument("folder", type=Path, help="folder of JPEG photos")
    parser.add_argument("--photos", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    paths = sorted(chosen.folder.glob("*.jpg"))[: chosen.photos]
    backbone = build_backbone(name="efficientnet_lite0").eval()
    variants: dict[str, Callable[[], np.ndarray]] = {
        "plain loop": lambda: plain(paths, backbone),
        "ours, float32": lambda: ours(paths, backbone, "float32"),
        "ours, bfloat16": lambda: ours(paths, backbone, "bfloat16"),
    }
    rates: dict[str, list[float]] = {name: [] for name in variants}
    results: dict[str, np.ndarray] = {}
    for _ in range(chosen.rounds):
        for name, compute in variants.items():
            started = time.perf_counter()
            results[name] = compute()
            rates[name].append(len(paths) / (time.perf_counter() - started))
    print(f"{len(paths)} photos, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    reference = results["plain loop"].astype(np.float32)
    for name, seconds in rates.items():
        ratio = statistics.median(seconds) / statistics.median(rates["plain loop"])
        error = np.linalg.norm(results[name] - reference) / np.linalg.norm(reference)
        spread = f"{min(seconds):.1f} to {max(seconds):.1f}"
        print(
            f"{name:15} {statistics.median(seconds):6.1f} photos/s ({spread}), x {ratio:.2f}, "
            f"relative error {error:.1e}"
        )
    print(f"reading 50 random records: {read_milliseconds(paths, backbone):.2f} ms (median)")


if __name__ == "__main__":
    main()
