"""Benchmark making MiniWorld: scenes per second on one core, including writing to disk.

python benchmarks/bench_miniworld.py [--num-scenes 1000] [--sizes 128 224]

"cold" begins with empty caches of icons and backdrops, as a first run does; "warm" goes on with
other scenes. "read" is `read_miniworld` on a split that was drawn before.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from captioning.miniworld.build import (
    Settings,
    annotate,
    encode,
    make_captions,
    make_settings,
)
from captioning.miniworld.dataset import read_miniworld
from captioning.miniworld.draw import backdrop, draw_scene
from captioning.miniworld.icons import masks, mirrored
from captioning.miniworld.sample import sample_scene


def stages(settings: Settings, indices: range, folder: Path) -> dict[str, float]:
    """CPU seconds of each step over the scenes ``indices``."""
    spent = dict.fromkeys(("sample", "caption", "draw", "write"), 0.0)

    def timed(stage: str, function: Callable, *arguments: object, **named: object) -> object:
        start = time.process_time()
        result = function(*arguments, **named)
        spent[stage] += time.process_time() - start
        return result

    lines = []
    for index in indices:
        where = {"seed": settings.seed, "split": settings.split, "index": index}
        scene = timed("sample", sample_scene, **where)
        captions = timed("caption", make_captions, scene, **where)
        drawing = timed("draw", draw_scene, scene, size=settings.size)
        path = folder / f"{scene.scene_id}.jpg"
        timed("write", lambda: path.write_bytes(encode(drawing.image)))  # noqa: B023
        lines.append(
            timed("write", lambda: json.dumps(annotate(scene, captions, drawing)))  # noqa: B023
        )
    timed("write", (folder / "annotations.jsonl").write_text, "\n".join(lines))
    return spent


def measure(size: int, num_scenes: int) -> None:
    """Print one block of the table."""
    settings = make_settings(split="train", num_scenes=num_scenes, seed=0, size=size)
    for cache in (backdrop, masks, mirrored):
        cache.cache_clear()
    with tempfile.TemporaryDirectory() as folder:
        for name, indices in (("cold", range(num_scenes)),
                              ("warm", range(num_scenes, 2 * num_scenes))):  # fmt: skip
            spent = stages(settings, indices, Path(folder))
            total = sum(spent.values())
            parts = ", ".join(
                f"{key} {value / num_scenes * 1e3:.2f}" for key, value in spent.items()
            )
            making = sum(spent[key] for key in ("sample", "caption", "draw"))
            print(
                f"{size} px {name}: {num_scenes / total:.0f} scenes/s written, "
                f"{num_scenes / making:.0f} without encoding and writing (ms a scene: {parts})"
            )
        reader_settings = {"name": "bench", "folder": folder, "split": "val", "size": size}
        for name in ("build and read", "read"):
            start = time.perf_counter()
            read_miniworld(**reader_settings, num_scenes=num_scenes)
            print(
                f"{size} px {name}: {num_scenes / (time.perf_counter() - start):.0f} scenes/s wall"
            )


def main() -> None:
    """Measure each size."""
    parser = argparse.ArgumentParser(description="Measure how fast MiniWorld is made.")
    parser.add_argument("--num-scenes", type=int, default=1000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 224])
    options = parser.parse_args()
    print(
        f"{platform.machine()}, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    )
    for size in options.sizes:
        measure(size, options.num_scenes)


if __name__ == "__main__":
    main()
