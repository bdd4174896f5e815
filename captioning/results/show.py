"""Scores on the terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from captioning.metrics.coco import MetricResult


def show_result(result: MetricResult, *, title: str, out: Path, num_images: int) -> None:
    """Print the corpus scores, what is missing and why, and where the files lie.

    Args:
        result: the scores.
        title: data set and split.
        out: the folder with ``metrics.json``.
        num_images: images of the split, of which ``result`` scored some or all.
    """
    console = Console()
    table = Table(title=title, caption=f"tokenizer: {result.settings['tokenizer']}")
    table.add_column("metric")
    table.add_column("score", justify="right")
    for name, score in result.corpus.items():
        table.add_row(name, f"{score:.4f}")
    for name in result.missing:
        table.add_row(name, "missing")
    console.print(table)
    for name, reason in result.missing.items():
        console.print(f"{name} is missing: {reason}", markup=False)
    console.print(f"{result.settings['num_images']} of {num_images} images scored", markup=False)
    if result.settings["num_empty_candidates"]:
        console.print(f"{result.settings['num_empty_candidates']} captions are empty")
    console.print(f"written: {out / 'metrics.json'}", markup=False, soft_wrap=True)
