"""Parquet files as Arrow files, written once: opening photos in any order is fast there.

Parquet is read by groups of rows, so that opening one photo reads all those of its group.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from captioning.runtime.file_lock import locked
from captioning.runtime.files import write_atomically
from captioning.vision.line_store import key_of
from captioning.vision.photo_places import photo_stamp
from captioning.vision.shards.arrow_rows import arrow, arrow_errors, is_parquet, parquet

log = logging.getLogger(__name__)

_ROWS = 64  # that are in memory at once


def as_arrow(files: Sequence[Path], columns: Sequence[str], cache_folder: Path) -> list[Path]:
    """Arrow files with the same rows; those that are there are not written again.

    Args:
        files: of which those in Parquet are written anew.
        columns: that are kept.
        cache_folder: where Arrow files go.

    Raises:
        ValueError: a damaged file.
        OSError: not enough space; nothing is written then.
    """
    targets = [_target(file, columns, cache_folder) for file in files]
    cache_folder.mkdir(parents=True, exist_ok=True)
    with locked(cache_folder / "arrow.lock", subject="Arrow files", notify=log.warning):
        missing = [pair for pair in zip(files, targets, strict=True) if not pair[1].is_file()]
        _check_space([file for file, _ in missing], cache_folder)
        for file, target in missing:
            write_atomically(target, lambda part, file=file: _write(file, part, columns))
    return targets


def _target(file: Path, columns: Sequence[str], cache_folder: Path) -> Path:
    if not is_parquet(file):
        return file
    stamp = map(str, photo_stamp(file))
    key = key_of(os.path.abspath(file), *stamp, *columns)
    return cache_folder / key / f"{file.stem}.arrow"


def _check_space(files: Sequence[Path], cache_folder: Path) -> None:
    """Photos do not shrink in Parquet, so that Arrow takes as much space."""
    needed = sum(file.stat().st_size for file in files)
    free = shutil.disk_usage(cache_folder).free
    if needed >= free:
        raise OSError(
            f"{cache_folder}: needs {needed / 1e9:.1f} GB for Arrow files, has {free / 1e9:.1f}; "
            "free space, choose another paths.cache=, or set data.convert=false"
        )
    if needed:
        log.info(f"writing {len(files)} Arrow files, {needed / 1e9:.1f} GB, to {cache_folder}")


def _write(file: Path, target: Path, columns: Sequence[str]) -> None:
    pa = arrow()
    with arrow_errors(str(file)), parquet().ParquetFile(file) as source:
        batches = source.iter_batches(_ROWS, columns=list(columns), use_threads=False)
        fields = [source.schema_arrow.field(name) for name in columns]
        schema = pa.schema(fields)
        with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch.select(columns).cast(schema))
