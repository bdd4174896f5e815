"""Join the rows of a table or folder that name the same photo."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from captioning.data.photo_folder import photo_name
from captioning.data.readers.entries import ImageEntry, numbered, with_stated_keys
from captioning.data.roster import Dropped


class Row(NamedTuple):
    """A row: photo name below the folder, captions with locations, and the row's location.

    ``image_id`` and ``sample_ids`` are those that the row says, and empty where it says none.
    """

    file_name: str
    captions: Sequence[tuple[Any, str]]
    where: str
    image_id: str = ""
    sample_ids: tuple[str, ...] = ()


def entries_of(rows: Iterable[Row], dropped: list[Dropped] | None) -> list[ImageEntry]:
    """Return one entry per photo, in the order of its first row.

    The image id comes from the rows if it is unique to each photo, else from the file name.

    Args:
        rows: rows of any order.
        dropped: see `numbered`.

    Raises:
        ValueError: a name that no file can have, or a bad caption.
    """
    joined: dict[str, list[Row]] = {}
    for row in rows:
        name = photo_name(row.file_name, row.where)
        joined.setdefault(name, []).append(row)
    said = {name: {row.image_id for row in own} for name, own in joined.items()}
    ids = {name: next(iter(own)) for name, own in said.items() if len(own) == 1}
    is_said = all(ids.values()) and len({*ids.values()}) == len(ids) == len(joined)
    return [
        _entry(name, ids[name] if is_said else name, own, dropped) for name, own in joined.items()
    ]


def _entry(
    name: str, image_id: str, rows: Sequence[Row], dropped: list[Dropped] | None
) -> ImageEntry:
    pairs = [pair for row in rows for pair in row.captions]
    sample_ids = [one for row in rows for one in row.sample_ids]
    captions = with_stated_keys(numbered(pairs, dropped), image_id, sample_ids, len(pairs))
    return ImageEntry(image_id=image_id, file_name=name, where=rows[0].where, captions=captions)
