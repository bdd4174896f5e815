"""Plot the results of `bench_size.py`: seconds to the first step, end of epoch, and memory."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

Line = dict[str, Any]
NAMES = {"features": "UpDown, features", "text": "ViECap, captions alone"}


def plot(record: Path, figure: Path) -> None:
    """Plot medians over measurements for each kind, size and start, and print the numbers."""
    measured: dict[tuple[str, str, int], list[Line]] = {}
    for text in record.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        measured.setdefault((line["kind"], line["start"], line["captions"]), []).append(line)
    panels: list[tuple[str, Callable[[Line], float | None], tuple[str, ...]]] = [
        ("first step after, s", lambda line: line["marks"][0]["time"], ("cold", "warm", "resumed")),
        ("the same, s of processor", lambda line: line["marks"][0]["cpu"], ("cold", "warm")),
        ("end of an epoch, s of processor", epoch_end, ("cold",)),
        ("peak memory, GB", lambda line: line["peak"] / 1024, ("cold",)),
    ]
    drawing, axes = plt.subplots(1, len(panels), figsize=(4 * len(panels), 3.6))
    for axis, (title, value, starts) in zip(axes, panels, strict=True):
        axis.set(title=title, xlabel="captions", xscale="log", yscale="log")
        for kind, name in NAMES.items():
            for start in starts:
                _draw(axis, measured, (kind, start), f"{name}, {start}", value)
        axis.grid(visible=True, which="both", alpha=0.2)
        axis.legend(fontsize=7)
    drawing.tight_layout()
    figure.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(figure, dpi=110)


def epoch_end(line: Line) -> float | None:
    """Seconds of curation, validation, checkpoint, next loader and first step."""
    cpu = {mark["mark"]: mark["cpu"] for mark in line["marks"]}
    if "first step of epoch 1" not in cpu or "last step of epoch 0" not in cpu:
        return None
    return cpu["first step of epoch 1"] - cpu["last step of epoch 0"]


def _numbers(lines: list[Line], value: Callable[[Line], float | None]) -> list[float]:
    return [number for line in lines if (number := value(line)) is not None]


def _draw(
    axis: Any,
    measured: dict[tuple[str, str, int], list[Line]],
    which: tuple[str, str],
    label: str,
    value: Callable[[Line], float | None],
) -> None:
    points = sorted(
        (captions, statistics.median(numbers))
        for (kind, start, captions), lines in measured.items()
        if (kind, start) == which and (numbers := _numbers(lines, value))
    )
    if points:
        axis.plot(*zip(*points, strict=True), marker="o", markersize=3, label=label)
        for captions, number in points:
            print(f"{axis.get_title()}; {label}; {captions} captions: {number:.2f}")
