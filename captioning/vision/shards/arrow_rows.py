"""Read rows of Arrow and Parquet files as plain values, without running code that a file names."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from captioning.runtime.extras import import_extra
from captioning.vision.shards.tar_member import MAX_PHOTO_BYTES

PARQUET = (".parquet", ".pq")
SUFFIXES = (".arrow", ".arrows", ".feather", ".ipc", *PARQUET)
_FEATHER_1 = b"FEA1"  # as Feather began, before it was Arrow's file format
_MAGIC = b"ARROW1"  # of Arrow's file format; its stream format, which `datasets` writes, has none
KEPT_FILES = 256
KEPT_GROUPS = 2  # row groups of Parquet that are held in memory


def arrow() -> Any:
    """Import and return pyarrow.

    Raises:
        ModuleNotFoundError: pyarrow is not installed; the message says how to install it.
    """
    return import_extra("pyarrow", extra="arrow", purpose="Arrow and Parquet files")


def parquet() -> Any:
    """Import and return pyarrow.parquet."""
    return import_extra("pyarrow.parquet", extra="arrow", purpose="Parquet files")


@contextmanager
def arrow_errors(file: str) -> Iterator[None]:
    """Convert Arrow errors within the context to one line that names the file.

    Raises:
        ValueError: the file is damaged, or holds unreadable data.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{file}: no such file") from error
    except (arrow().ArrowException, UnicodeDecodeError, OSError, MemoryError) as error:
        reason = (str(error).splitlines() or ["not enough memory"])[0][:200]
        raise ValueError(f"{file}: cannot be read ({reason}); download it again") from error


def read_row(file: str, column: str, name: str) -> bytes:
    """Return the bytes of a photo in a row.

    Args:
        file: path of an Arrow or Parquet file.
        column: column of bytes, or of structures with a field ``bytes``.
        name: row number, with or without a suffix, or followed by ``/`` and a name.

    Raises:
        FileNotFoundError: the file, row or photo does not exist.
        ValueError: a damaged file, or a column without photos.
    """
    digits = name.partition("/")[0].partition(".")[0]
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 18:
        raise ValueError(f"{name[:40]!r} is not a row number")
    row = int(digits)
    with arrow_errors(file):
        value = _group_value(file, column, row) if is_parquet(file) else _value(file, column, row)
    if value is None:
        raise FileNotFoundError(f"{file}: no photo in column {column!r} of row {row}")
    if len(value) > MAX_PHOTO_BYTES:
        raise ValueError(f"the photo has {len(value)} bytes, the maximum is {MAX_PHOTO_BYTES}")
    return value


def is_parquet(file: str | Path) -> bool:
    """Whether a file is Parquet by its name; otherwise it is an Arrow file or stream."""
    return str(file).endswith(PARQUET)


def open_table(file: str) -> Any:
    """Open the table of an Arrow file, memory-mapped."""
    pa = arrow()
    source = pa.memory_map(file)
    begin = source.read(len(_MAGIC))
    if begin.startswith(_FEATHER_1):
        raise ValueError(f"{file}: Feather version 1 is not supported; write version 2")
    is_file = begin == _MAGIC
    source.seek(0)
    reader: Callable[[Any], Any] = pa.ipc.open_file if is_file else pa.ipc.open_stream
    return reader(source).read_all()


@lru_cache(KEPT_FILES)
def _chunks(file: str, column: str) -> tuple[list[Any], list[int]]:
    """Return the chunks of a photo column, and the row after each chunk."""
    table = open_table(file)
    chunks = [photo_bytes(chunk, file, column) for chunk in _column(table, file, column).chunks]
    for chunk in chunks:
        chunk.validate(full=True)  # places of values beyond the file would end the process
    return chunks, list(itertools.accumulate(map(len, chunks)))


def _value(file: str, column: str, row: int) -> bytes | None:
    chunks, ends = _chunks(file, column)
    number = bisect.bisect_right(ends, row)
    if number == len(chunks):
        return None
    return chunks[number][row - (ends[number] - len(chunks[number]))].as_py()


@lru_cache(KEPT_FILES)
def _group_ends(file: str) -> tuple[Any, list[int]]:
    """Return a Parquet file's metadata, and the row after each of its row groups."""
    metadata = parquet().read_metadata(file)
    counts = (metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
    return metadata, list(itertools.accumulate(counts))


@lru_cache(KEPT_GROUPS)
def _group(file: str, column: str, group: int) -> Any:
    metadata, _ = _group_ends(file)
    with parquet().ParquetFile(file, metadata=metadata) as source:
        table = source.read_row_group(group, columns=[column], use_threads=False)
    values = _column(table, file, column).combine_chunks()
    return photo_bytes(values, file, column)


def _group_value(file: str, column: str, row: int) -> bytes | None:
    _, ends = _group_ends(file)
    group = bisect.bisect_right(ends, row)
    if group == len(ends):
        return None
    first = ends[group - 1] if group else 0
    return _group(file, column, group)[row - first].as_py()


def _column(table: Any, file: str, column: str) -> Any:
    if column not in table.column_names:
        raise ValueError(f"{file}: no column {column!r}; choose from {table.column_names}")
    return table[column]


def plain_values(values: Any) -> Any:
    """Convert values to plain types: categories, polars views, and lists of one photo.

    Lists of zero or several photos become null.
    """
    pa = arrow()
    kind = values.type
    if isinstance(values, pa.ChunkedArray):
        chunks = [plain_values(chunk) for chunk in values.chunks]
        return pa.chunked_array(chunks) if chunks else values
    if pa.types.is_dictionary(kind):
        return values.dictionary_decode()
    if kind in (pa.string_view(), pa.binary_view()):
        return values.cast(pa.large_string() if kind == pa.string_view() else pa.large_binary())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        starts, lengths = values.offsets.to_pylist(), values.value_lengths().to_pylist()
        places = [s if length == 1 else None for s, length in zip(starts, lengths, strict=False)]
        return values.values.take(pa.array(places, pa.int64()))
    return values


def photo_bytes(values: Any, file: str, column: str) -> Any:
    """Return the bytes ``(N,)`` of a column's values, null where missing.

    Args:
        values: N bytes, structures with a field ``bytes``, or lists of one of these.
        file, column: names for the message.

    Raises:
        ValueError: the values have another type.
    """
    pa = arrow()
    values = plain_values(values)
    if pa.types.is_struct(values.type) and values.type.get_field_index("bytes") >= 0:
        compute = import_extra("pyarrow.compute", extra="arrow", purpose="Arrow files")
        values = plain_values(compute.struct_field(values, "bytes"))
    if not (pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)):
        raise ValueError(f"{file}: column {column!r} must hold bytes of photos: got {values.type}")
    return values
