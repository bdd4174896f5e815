"""Locations of photos: each in its own file, or in a shard of many.

A photo in a shard has a path as others have, which leads on into the shard:

* ``SHARD.tar/@OFFSET/NAME.jpg``: the member whose header begins at that byte;
* ``FILE.arrow/@COLUMN/ROW.jpg`` and ``FILE.parquet/@COLUMN/ROW.jpg``: the value of a row, or
  ``ROW/NAME.jpg`` where the photo has a name.

Such a path suffices to open the photo, so processes share no index, and a copy of the path opens
the photo in any process. Paths in order are in the order of the shard.
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
    """The location of a photo in a shard.

    Attributes:
        file: the shard.
        place: offset of the member's header in bytes, or the column's name.
        name: the member's name; of a row, its number with the photo's suffix or before its name.
    """

    file: str
    place: str
    name: str

    @property
    def file_name(self) -> str:
        """The photo's name in the shard; of a row without one, its number with a suffix."""
        row, _, name = self.name.partition("/")
        is_named = not self.file.endswith(".tar") and row.isdecimal() and name
        return name if is_named else self.name


def member_path(shard: str | Path, offset: int, name: str) -> str:
    """The path of a photo in a tar file.

    Args:
        shard: the tar file.
        offset: offset of the member's header, in bytes.
        name: name of the member, relative and without ``..``.
    """
    return f"{shard}/@{offset:012d}/{name}"


def row_path(file: str | Path, column: str, row: int, suffix: str = "") -> str:
    """The path of a photo in an Arrow or Parquet file.

    Args:
        file: the file.
        column: column of photos; a field of a structure after a dot.
        row: row number from 0.
        suffix: suffix of the photo, such as ``".jpg"``; or its name after a ``/``.
    """
    return f"{file}/@{quote(column, safe='')}/{row:09d}{suffix}"


def place_in_shard(path: str | Path) -> ShardPlace | None:
    """The location of a photo in a shard; None for one in its own file."""
    text = str(path)
    if "/@" not in text:
        return None
    match = _IN_SHARD.fullmatch(text)
    return None if match is None else ShardPlace(*match.groups())


def photo_exists(path: str | Path) -> bool:
    """Whether there is such a file, or the shard of such a photo."""
    place = place_in_shard(path)
    return os.path.isfile(path if place is None else place.file)


def photo_stamp(path: str | Path) -> tuple[int, int]:
    """Size and time of change (ns) of a photo's file, which reveal a change.

    Raises:
        OSError: it is not there.
    """
    place = place_in_shard(path)
    status = os.stat(path if place is None else place.file)
    return status.st_size, status.st_mtime_ns


def open_photo(path: str | Path) -> io.BufferedReader | io.BytesIO:
    """The bytes of a photo, as a file.

    Raises:
        FileNotFoundError: the file or the row does not exist.
        ValueError: the shard has something else in that place.
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
    """The path that a photo of a shard would have, were the shard a folder; others as they are."""
    place = place_in_shard(path)
    if place is None:
        return path
    return Path(place.file).with_suffix("") / PurePosixPath(place.file_name)
