"""Locations of photos: separate files, or entries of a shard with many photos.

A photo in a shard has a path like other photos, which continues inside the shard:

* ``SHARD.tar/@OFFSET/NAME.jpg``: the member whose header starts at this byte;
* ``FILE.arrow/@COLUMN/ROW.jpg`` and ``FILE.parquet/@COLUMN/ROW.jpg``: the value of a row, or
  ``ROW/NAME.jpg`` if the photo has a name.

The path alone suffices to open the photo in any process, so processes share no index. Sorted paths
follow the order of the shard.
"""

from __future__ import annotations

import io
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote

_IN_SHARD = re.compile(r"(.+?\.(?:tar|arrows?|feather|ipc|parquet|pq))/@([^/]+)/(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ShardPlace:
    """Location of a photo in a shard.

    Attributes:
        file: path of the shard.
        place: byte offset of the member's header, or the column's name.
        name: name of the member; for a row, its number with suffix, or number and name.
    """

    file: str
    place: str
    name: str

    @property
    def file_name(self) -> str:
        """Name of the photo in the shard; for a row without name, its number with a suffix."""
        row, _, name = self.name.partition("/")
        is_named = not self.file.endswith(".tar") and row.isdecimal() and name
        return name if is_named else self.name


def member_path(shard: str | Path, offset: int, name: str) -> str:
    """Return the path of a photo in a tar file.

    Args:
        shard: path of the tar file.
        offset: byte offset of the member's header.
        name: name of the member, relative and without ``..``.
    """
    return f"{shard}/@{offset:012d}/{name}"


def row_path(file: str | Path, column: str, row: int, suffix: str = "") -> str:
    """Return the path of a photo in an Arrow or Parquet file.

    Args:
        file: path of the Arrow or Parquet file.
        column: column of photos; fields of structures follow a dot.
        row: row number from 0.
        suffix: suffix of the photo, such as ``".jpg"``; or its name after a ``/``.
    """
    return f"{file}/@{quote(column, safe='')}/{row:09d}{suffix}"


def place_in_shard(path: str | Path) -> ShardPlace | None:
    """Return the location of a photo in a shard; None for a photo in its own file."""
    text = str(path)
    if "/@" not in text:
        return None
    match = _IN_SHARD.fullmatch(text)
    return None if match is None else ShardPlace(*match.groups())


def photo_exists(path: str | Path) -> bool:
    """Whether a photo's file, or the shard that holds it, exists."""
    place = place_in_shard(path)
    return os.path.isfile(path if place is None else place.file)


def photo_stamp(path: str | Path) -> tuple[int, int]:
    """Return size and modification time (ns) of a photo's file, to detect changes.

    Raises:
        OSError: the file does not exist.
    """
    place = place_in_shard(path)
    status = os.stat(path if place is None else place.file)
    return status.st_size, status.st_mtime_ns


def open_photo(path: str | Path) -> io.BufferedReader | io.BytesIO:
    """Open the bytes of a photo as a file object.

    Raises:
        FileNotFoundError: the file or the row does not exist.
        ValueError: the shard holds something else at this location.
    """
    place = place_in_shard(path)
    if place is None:
        return open(path, "rb")
    try:
        if place.file.endswith(".tar"):
            from captioning.vision.shards.tar_member import read_member

            return io.BytesIO(read_member(place.file, place.place, place.name))
        from captioning.vision.shards.arrow_rows import read_row

        return io.BytesIO(read_row(place.file, unquote(place.place), place.name))
    except ValueError as error:
        reason = str(error).removeprefix(f"{place.file}: ")
        raise ValueError(f"{path}: {reason}") from error


def plain_path(path: Path) -> Path:
    """Return the path with the shard as a plain folder; other paths stay unchanged."""
    place = place_in_shard(path)
    if place is None:
        return path
    return Path(place.file).with_suffix("") / PurePosixPath(place.file_name)
