"""Write a feature store: rows into shards, then an index line for each block."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

import numpy as np

from captioning.data.features.index import (
    BOX_BYTES,
    BOXES_NAME,
    INDEX_NAME,
    LOG_NAME,
    UNCHECKED,
    Block,
    FeatureIndex,
    PathEntry,
    shard_name,
)


def check_space(
    folder: Path, needed: int, num_photos: int, notify: Callable[[str], object]
) -> None:
    """Log how much disk space features will need, and raise an error if there is less.

    Args:
        folder: the store's folder.
        needed: bytes of the features; an eighth of a percent and 64 MiB are added for the index.
        num_photos: number of their photos.
        notify: shows one line.

    Raises:
        OSError: not enough space.
    """
    needed += needed // 800 + 64 * 2**20
    free = shutil.disk_usage(folder).free
    need = f"features of {num_photos:,} photos need about {needed / 2**30:.2f} GiB"
    if needed > free:
        raise OSError(
            f"{folder}: {need}, but only {free / 2**30:.2f} GiB are free; free space, or use a "
            "folder on another disk (CAPTIONING_CACHE for features that a run computes)"
        )
    notify(f"{need} in {folder}; {free / 2**30:.2f} GiB are free")


SHARD_BYTES = 2**30  # a shard that has reached it is followed by another


class FeatureWriter:
    """Writer that appends records to a store; the caller must hold the folder's lock.

    A kill loses at most the records since the last `commit`.

    Args:
        folder: the store's folder.
        index: index of the store, or a new one.
        shard_bytes: size from which the next block begins another shard.
    """

    def __init__(
        self, *, folder: Path, index: FeatureIndex, shard_bytes: int = SHARD_BYTES
    ) -> None:
        """Open ``folder`` for appending, and remove data that the index does not list."""
        self.folder, self.index, self.shard_bytes = folder, index, shard_bytes
        self._shard = len(index.shard_rows) - 1
        if not index.is_current:
            _bring_to_present_format(folder, index)
        self._log = _opened(folder / LOG_NAME, index.log_bytes)
        self._boxes = (
            _opened(folder / BOXES_NAME, index.num_rows * BOX_BYTES) if index.has_boxes else None
        )
        self._file = self._open_shard()
        self._block = Block(shard=self._shard)

    def __enter__(self) -> FeatureWriter:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for file in self._files():
                with contextlib.suppress(OSError):  # of a full disk; what is unwritten is cut off
                    file.close()
        finally:
            self._cut()

    def append(
        self,
        key: str,
        features: np.ndarray,
        *,
        boxes: np.ndarray | None = None,
        size: tuple[float, float] | None = None,
    ) -> None:
        """Add one record; it counts from the next `commit` on.

        Args:
            key: key of the record, new to the store.
            features: ``(R, D) float16``.
            boxes: ``(R, 4) float32``, shares of the photo's sides, if the store has boxes.
            size: width and height of the photo in pixels, if known.

        Raises:
            ValueError: features or boxes of another form.
            OSError: the disk is full.
        """
        self._check(key, features, boxes)
        if not self._block.keys and self._committed_bytes() >= self.shard_bytes:
            self._begin_shard()
        rows = np.ascontiguousarray(features)
        check = zlib.crc32(rows.data)
        with _explained(self.folder):
            self._file.write(rows.data)
            if self._boxes is not None and boxes is not None:
                places = np.ascontiguousarray(boxes)
                check = zlib.crc32(places.data, check)
                self._boxes.write(places.data)
        self._block.keys.append(key)
        self._block.counts.append(len(features))
        self._block.checks.append(check)
        self._block.sizes.append(size or (0.0, 0.0))

    def add_paths(self, paths: Mapping[str, PathEntry]) -> None:
        """Add entries of photos; they count from the next `commit` on."""
        self._block.paths.update(paths)

    def commit(self) -> None:
        """Make appended records part of the store, atomically."""
        if not self._block.keys and not self._block.paths and self._header_exists():
            return
        line = self._block.line()
        with _explained(self.folder):
            for file in (self._file, *([] if self._boxes is None else [self._boxes])):
                file.flush()
                os.fsync(file.fileno())
            self._log.write(line)
            self._log.flush()
            os.fsync(self._log.fileno())
            if not self._header_exists():
                self.index.save_header(self.folder)
        self.index.add(self._block)
        self.index.log_bytes += len(line)
        self._block = Block(shard=self._shard)

    def _check(self, key: str, features: np.ndarray, boxes: np.ndarray | None) -> None:
        if features.dtype != np.float16 or features.ndim != 2 or len(features) < 1:
            raise ValueError(
                f"{key}: record must be (R, D) float16: got {features.shape} {features.dtype}"
            )
        if features.shape[1] != self.index.dim:
            raise ValueError(
                f"{self.folder}: features must have {self.index.dim} values: got "
                f"{features.shape[1]} for {key}; another backbone needs another folder"
            )
        if self.index.has_boxes != (boxes is not None):
            raise ValueError(f"{key}: either all records of a store have boxes, or none")
        if boxes is not None and (boxes.dtype, boxes.shape) != (np.float32, (len(features), 4)):
            raise ValueError(f"{key}: boxes must be (R, 4) float32: got {boxes.shape}")

    def _header_exists(self) -> bool:
        return (self.folder / INDEX_NAME).exists()

    def _files(self) -> list[IO[bytes]]:
        return [file for file in (self._file, self._boxes, self._log) if file is not None]

    def _committed_bytes(self) -> int:
        """Bytes of the current shard that are committed."""
        rows = self.index.shard_rows[self._shard] if self._shard < len(self.index.shard_rows) else 0
        return rows * self.index.row_bytes

    def _open_shard(self) -> IO[bytes]:
        return _opened(self.folder / shard_name(self._shard), self._committed_bytes())

    def _begin_shard(self) -> None:
        self._file.close()
        self._shard += 1
        self._file = self._open_shard()
        self._block.shard = self._shard

    def _cut(self) -> None:
        """Remove appended data that was not committed."""
        os.truncate(self.folder / shard_name(self._shard), self._committed_bytes())
        os.truncate(self.folder / LOG_NAME, self.index.log_bytes)
        if self._boxes is not None:
            os.truncate(self.folder / BOXES_NAME, self.index.num_rows * BOX_BYTES)


def _opened(path: Path, size: int) -> IO[bytes]:
    """Open a file for appending after cutting it to ``size`` bytes."""
    with _explained(path.parent):
        file = path.open("ab")
        file.truncate(size)
    return file


def _bring_to_present_format(folder: Path, index: FeatureIndex) -> None:
    """Write the log of an index of format 1, then the new header in place of the old index.

    Until the header is replaced the store is of format 1, and a log beside it does not count.
    """
    block = Block(
        keys=list(index.positions),
        counts=list(index.counts),
        checks=[UNCHECKED] * len(index.positions),
        paths=dict(index.paths),
    )
    line = block.line()
    with _explained(folder), (folder / LOG_NAME).open("wb") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
    index.save_header(folder)
    index.log_bytes, index.is_current = len(line), True


class _explained:
    """Add the remedy to errors of a full or unwritable disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, OSError):
            return
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            told = (
                "the disk is full; what was committed before is valid. Free some space or set "
                "CAPTIONING_CACHE to another disk, and start again: it resumes there"
            )
        else:
            told = (
                f"features cannot be written ({error.strerror}); what was committed before is "
                "valid. Set CAPTIONING_CACHE to a folder that can be written"
            )
        raise OSError(error.errno, told, str(error.filename or self.folder)) from error
