"""Scores on the terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from captioning.metrics.coco import MetricResult
from captioning.metrics.java import JavaError, find_java


def show_result(result: MetricResult, *, title: str, out: Path, num_images: int) -> None:
    """Print the corpus scores with their intervals, what is missing and why, and the files' place.

    Args:
        result: the scores.
        title: data set and split.
        out: the folder with ``metrics.json``.
        num_images: images of the split, of which ``result`` scored some or all.
    """
    console = Console()
    console.print(_table(result, title))
    for line in _left_out(result):
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"{result.settings['num_images']} of {num_images} images scored", markup=False)
    if result.settings["num_empty_candidates"]:
        console.print(f"{result.settings['num_empty_candidates']} captions are empty")
    console.print(f"written: {out / 'metrics.json'}", markup=False, soft_wrap=True)


def _table(result: MetricResult, title: str) -> Table:
    table = Table(title=title, caption=f"tokenizer: {result.settings['tokenizer']}")
    table.add_column("metric")
    table.add_column("score", justify="right")
    if result.intervals:
        confidence = result.settings["bootstrap"]["confidence"]
        table.add_column(f"{confidence:.0%} interval over images")
    for name, score in result.corpus.items():
        ends = result.intervals.get(name)
        table.add_row(name, f"{score:.4f}", f"{ends[0]:.4f} to {ends[1]:.4f}" if ends else "")
    for name in result.missing:
        table.add_row(name, "missing")
    return table


def _left_out(result: MetricResult) -> list[str]:
    """What is not as in published scores, and the remedy; scores of one reason in one line."""
    names_by_reason: dict[str, list[str]] = {}
    for name, reason in result.missing.items():
        names_by_reason.setdefault(reason, []).append(name)
    lines = [f"missing: {', '.join(names)}: {why}" for why, names in names_by_reason.items()]
    reason = result.settings.get("tokenizer_reason")
    if reason is not None:
        lines.append(
            f"captions were tokenized in Python, nearly as Java does for published scores: {reason}"
        )
    if "SPICE" in result.missing and not _has_java():
        lines.append("with Java, SPICE needs its jars, too: `captioning prepare metrics`")
    return lines


def _has_java() -> bool:
    try:
        find_java()
    except JavaError:
        return False
    return True
