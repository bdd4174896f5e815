"""Rows of a file and its captions, as tables and folders have them: rows of one file are joined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from captioning.data.photo_folder import checked_file_name
from captioning.data.readers.entries import ImageEntry, numbered
from captioning.data.roster import Dropped


class Row(NamedTuple):
    """A row: the photo's name below the folder, captions with their places, the row's place."""

    file_name: str
    captions: Sequence[tuple[Any, str]]
    where: str


def entries_of(rows: Iterable[Row], dropped: list[Dropped] | None) -> list[ImageEntry]:
    """An entry a photo, in the order of first rows; the file name is the image id.

    Args:
        rows: of any order.
        dropped: see `numbered`.

    Raises:
        ValueError: a name that no file can have, or a bad caption.
    """
    joined: dict[str, tuple[str, list[tuple[Any, str]]]] = {}
    for row in rows:
        name = checked_file_name(row.file_name, row.where)
        joined.setdefault(name, (row.where, []))[1].extend(row.captions)
    return [
        ImageEntry(image_id=name, file_name=name, where=where, captions=numbered(captions, dropped))
        for name, (where, captions) in joined.items()
    ]
