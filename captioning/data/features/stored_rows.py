"""Rows of a feature store, memory-mapped and checked when first read."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from captioning.data.features.index import BOXES_NAME, UNCHECKED, FeatureIndex, shard_name

NOT_FINITE = 0x7C00  # the bits of infinity in float16; those of NaN are more


class MappedRows:
    """Memory-mapped records of a store, by position.

    Copies sent to other processes map the same files, and share their pages.

    Args:
        folder: the store's folder.
        index: the store's index.
        name_of: the key of the record at a position, for messages.

    Attributes:
        counts: ``(N,) int64`` rows of each record.
    """

    def __init__(self, *, folder: Path, index: FeatureIndex, name_of: Callable[[int], str]) -> None:
        self.folder, self.dim, self.has_boxes = folder, index.dim, index.has_boxes
        self.counts = np.array(index.counts, dtype=np.int64)
        self._starts = np.cumsum(self.counts) - self.counts
        self._checks = np.array(index.checks, dtype=np.int64)
        self._is_checked = np.zeros(len(self.counts), dtype=bool)
        self._shard_rows = np.array(index.shard_rows, dtype=np.int64)
        self._shard_starts = np.cumsum(self._shard_rows) - self._shard_rows
        self._name_of = name_of
        self._shards: list[np.ndarray] | None = None
        self._boxes: np.ndarray | None = None
        self.width = int(self.counts.max(initial=0))
        # One gather for all records is the fastest, where all lie alike.
        self._even = len(self._shard_rows) == 1 and bool((self.counts == self.width).all())

    def __getstate__(self) -> dict[str, Any]:
        # A memory map pickles as a copy of all its data.
        return {**self.__dict__, "_shards": None, "_boxes": None}

    def features(self, where: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return ``(I, R, D) float16``, zero in padding, and the mask ``(I, R) bool`` or None.

        Raises:
            ValueError: a record's rows are damaged.
        """
        if self._even:
            records = self._mapped()[0].reshape(-1, self.width, self.dim)[where]
            self._check(where, list(records))
            return records, None
        counts = self.counts[where]
        width = int(counts.max(initial=0))
        features = np.zeros((len(where), width, self.dim), dtype=np.float16)
        rows = [self._rows(position) for position in where.tolist()]
        for target, record in zip(features, rows, strict=True):
            target[: len(record)] = record
        self._check(where, rows)
        mask = np.arange(width) < counts[:, None]
        return features, None if mask.all() else mask

    def boxes(self, where: np.ndarray) -> np.ndarray:
        """Return boxes ``(I, R, 4) float32`` as fractions of the photo's sides, zero in padding."""
        counts = self.counts[where]
        boxes = np.zeros((len(where), int(counts.max(initial=0)), 4), dtype=np.float32)
        for target, position, count in zip(boxes, where.tolist(), counts.tolist(), strict=True):
            target[:count] = self._boxes_of(position)
        return boxes

    def damaged(self) -> list[int]:
        """Return positions of records that differ from their checksums; reads the whole store."""
        return [p for p in range(len(self.counts)) if self._is_damaged(p, self._rows(p))]

    def _rows(self, position: int) -> np.ndarray:
        start = self._starts[position]
        shard = int(np.searchsorted(self._shard_starts, start, side="right")) - 1
        first = int(start - self._shard_starts[shard])
        return self._mapped()[shard][first : first + int(self.counts[position])]

    def _boxes_of(self, position: int) -> np.ndarray:
        if self._boxes is None:
            self._boxes = _mapped(self.folder / BOXES_NAME, "<f4", int(self.counts.sum()), 4)
        start = int(self._starts[position])
        return self._boxes[start : start + int(self.counts[position])]

    def _mapped(self) -> list[np.ndarray]:
        if self._shards is None:
            self._shards = [
                _mapped(self.folder / shard_name(number), "<f2", rows, self.dim)
                for number, rows in enumerate(self._shard_rows.tolist())
            ]
        return self._shards

    def _check(self, where: np.ndarray, records: Sequence[np.ndarray]) -> None:
        """Compare the checksums of records that were not read before."""
        for number in np.flatnonzero(~self._is_checked[where]).tolist():
            position, record = int(where[number]), records[number]
            if self._is_damaged(position, record):
                raise ValueError(
                    f"{self.folder}: the features of {self._name_of(position)} differ from their "
                    f"checksum (damaged on disk, or copied partially); copy the folder "
                    f"again, or "
                    "delete it and build again"
                )
            self._is_checked[position] = True

    def _is_damaged(self, position: int, record: np.ndarray) -> bool:
        expected = self._checks[position]
        if expected == UNCHECKED:  # old stores: what can be seen without a checksum
            largest = (np.ascontiguousarray(record).view(np.uint16) & 0x7FFF).max()
            return not 0 < largest < NOT_FINITE
        check = zlib.crc32(np.ascontiguousarray(record).data)
        if self.has_boxes:
            check = zlib.crc32(np.ascontiguousarray(self._boxes_of(position)).data, check)
        return check != expected


def _mapped(path: Path, dtype: str, rows: int, width: int) -> np.ndarray:
    if not rows:
        return np.zeros((0, width), dtype=dtype)
    # As a plain array: slices of a memmap object cost several times as much.
    return np.asarray(np.memmap(path, dtype=dtype, mode="r", shape=(rows, width)))
