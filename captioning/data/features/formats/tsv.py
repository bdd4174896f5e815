"""Tab-separated features of bottom-up attention: boxes and features as base64 of float32.

``image_id, image_w, image_h, num_boxes, boxes, features`` (peteanderson80/bottom-up-attention), in
one file, or in parts ``.tsv.0``, ``.tsv.1`` and so on.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from captioning.data.features.formats.base import MAX_ROWS, AbstractSource, Record, Wanted

COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")


class TsvSource(AbstractSource):
    """One file of them."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)

    def count(self) -> int:
        """By the length of the first line."""
        with self.path.open("rb") as file:
            first = len(file.readline())
        return round(self.path.stat().st_size / first) if first else 0

    def records(self, wanted: Wanted) -> Iterator[Record]:
        """Reads line by line; a line that is not wanted is not decoded."""
        with self.path.open("rb", buffering=2**20) as file:  # a line may be a megabyte
            for number, line in enumerate(file, start=1):
                where = f"{self.path}, line {number}"
                image_id = _text(line[: max(line.find(b"\t"), 0)], where)
                if wanted(image_id, where):
                    yield _record(image_id, line, where)


def _record(image_id: str, line: bytes, where: str) -> Record:
    cells = line.rstrip(b"\r\n").split(b"\t")
    if len(cells) != len(COLUMNS):
        raise ValueError(
            f"{where}: must hold {', '.join(COLUMNS)} between tabs: got {len(cells)} columns; was "
            "the file cut off?"
        )
    _, width, height, count, boxes, features = cells
    if not count.isdigit() or not 1 <= int(count) <= MAX_ROWS:
        raise ValueError(f"{where}: num_boxes must be 1 to {MAX_ROWS}: got {count[:20]!r}")
    return Record(
        image_id=image_id,
        where=where,
        boxes=_floats(boxes, int(count), "boxes", where, width=4),
        features=_floats(features, int(count), "features", where),
        size=(_pixels(width, "image_w", where), _pixels(height, "image_h", where)),
    )


def _text(cell: bytes, where: str) -> str:
    try:
        text = cell.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: image_id is not UTF-8 text") from error
    if not text:
        raise ValueError(f"{where}: image_id is empty")
    return text


def _pixels(cell: bytes, column: str, where: str) -> float:
    if not cell.isdigit() or not 1 <= int(cell) < 10**6:
        raise ValueError(f"{where}: {column} must be a number of pixels: got {cell[:20]!r}")
    return float(cell)


def _floats(
    cell: bytes, rows: int, column: str, where: str, width: int | None = None
) -> np.ndarray:
    """Base64 of float32 as ``(rows, width)``."""
    try:
        data = base64.b64decode(cell, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{where}: {column} is not base64 ({error}); was it cut off?") from error
    if not data or len(data) % (4 * rows) or (width and len(data) != 4 * rows * width):
        raise ValueError(
            f"{where}: {column} holds {len(data)} bytes, which is no float32 for {rows} boxes; "
            "was the line cut off?"
        )
    return np.frombuffer(data, dtype="<f4").reshape(rows, -1)
