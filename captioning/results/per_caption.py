"""Scores of captions: tables with a row a caption (CSV, Parquet), and lines on the terminal."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from captioning.metrics.coco import MetricResult
from captioning.metrics.java import JavaError, find_java
from captioning.runtime.extras import import_extra
from captioning.runtime.files import write_atomically

NAME = "per_caption"


def caption_columns(captions: Mapping[str, str], result: MetricResult) -> dict[str, list[Any]]:
    """``image_id``, ``caption`` and each score by name; None where an image lacks a score.

    Args:
        captions: the caption of each image.
        result: their scores.
    """
    # lone surrogates, which JSON can hold and UTF-8 cannot, become "?" as they do before scoring
    texts = [text.encode(errors="replace").decode() for text in captions.values()]
    ids = [image_id.encode(errors="replace").decode() for image_id in captions]
    rows = [result.per_image.get(image_id, {}) for image_id in captions]
    names = dict.fromkeys(name for row in rows for name in row)
    return {
        "image_id": ids,
        "caption": texts,
        **{name: [row.get(name) for row in rows] for name in names},
    }


def write_csv(path: Path, columns: Mapping[str, list[Any]]) -> None:
    """Write columns of equal length as CSV in UTF-8 with a head; None is an empty cell."""

    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))

    write_atomically(path, write)


def write_parquet(path: Path, columns: Mapping[str, list[Any]]) -> None:
    """Write columns of equal length as Parquet.

    Raises:
        ModuleNotFoundError: pyarrow is not installed; says how to install it.
    """
    parquet = import_extra("pyarrow.parquet", extra="arrow", purpose=path.name)
    arrow = import_extra("pyarrow", extra="arrow", purpose=path.name)
    table = arrow.table(dict(columns))
    write_atomically(path, lambda part: parquet.write_table(table, part))


def write_per_caption(folder: Path, columns: Mapping[str, list[Any]]) -> list[str]:
    """Write ``per_caption.csv`` and ``per_caption.parquet`` into a folder.

    Returns:
        What is left out and how to get it: a line if pyarrow is not installed. Parquet of earlier
        captions is removed then.
    """
    write_csv(folder / f"{NAME}.csv", columns)
    try:
        write_parquet(folder / f"{NAME}.parquet", columns)
    except ModuleNotFoundError as error:
        (folder / f"{NAME}.parquet").unlink(missing_ok=True)
        return [f"left out: {error}"]
    return []


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
