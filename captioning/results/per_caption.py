"""Tables of scored captions, a row a caption: CSV, and Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from captioning.metrics.coco import MetricResult
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
