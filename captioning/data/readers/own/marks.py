"""Find splits in a single file of all photos: in a column ``split``, or in photo folders."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from captioning.config.setting_error import SettingError
from captioning.data.json_files import Record, load_json_lines
from captioning.data.json_streams import stream_records
from captioning.data.photo_folder import PhotoFolder, photo_name
from captioning.data.readers import imagefolder, table
from captioning.data.readers.jsonl import image_id_of, records_of
from captioning.data.readers.own.kinds import Kind
from captioning.data.readers.record_keys import stated_name
from captioning.data.readers.split_words import (
    COLUMN,
    SPLITS,
    Split,
    split_key,
    split_of,
    split_said,
)
from captioning.data.readers.text_files import records_beside
from captioning.data.roster import Roster

log = logging.getLogger(__name__)

_WITH_FOLDERS: tuple[Kind, ...] = (
    "imagefolder", "token_file", "coco", "jsonl", "table", "line_pairs", "text_files", "file_names",
)  # fmt: skip


class _Mark(NamedTuple):
    """A value that a file gives for a photo (by image id or name), with its location."""

    image_id: str
    said: str
    where: str


def split_marks(
    kind: Kind, path: Path, file_column: str | None, photos: Path, roster: Roster
) -> dict[str, Split]:
    """Return the split of each photo by image id; empty if none is given.

    Args:
        kind: the layout's kind.
        path: the file or folder with the captions.
        file_column: file column of tables; None: the one with a usual name.
        photos: the folder that names of photos are relative to.
        roster: all photos.

    Raises:
        ValueError: a value of the column that says no split, or two for one photo.
    """
    marks = list(_column(kind, path, file_column))
    below = {}
    if marks and kind != "coco":  # whose numbers are no names
        below = PhotoFolder(folder=photos).below_or_cut([mark.image_id for mark in marks])
    if kind in ("imagefolder", "table") or below:
        ids = _ids_by_name(photos, roster)
        names = [below.get(mark.image_id, mark.image_id) for mark in marks]
        marks = [m._replace(image_id=ids.get(n, n)) for m, n in zip(marks, names, strict=True)]
    return _of_column(marks) if marks else _of_folders(kind, photos, roster)


def splits_by_id(path: Path) -> dict[str, Split]:
    """Return the splits given by COCO's JSON or JSON Lines, by image id; empty if none.

    Raises:
        ValueError: see `split_marks`.
    """
    kind: Kind = "jsonl" if path.suffix == ".jsonl" else "coco"
    return _of_column(_column(kind, path, None))


def _ids_by_name(photos: Path, roster: Roster) -> dict[str, str]:
    """Return image ids by names of photos below a folder, with and without suffix."""
    ids: dict[str, str] = {}
    for sample in roster.samples:
        if sample.image_path.is_relative_to(photos):
            name = sample.image_path.relative_to(photos)
            ids[name.as_posix()] = sample.image_id
            ids.setdefault(name.with_suffix("").as_posix(), sample.image_id)
    return ids


def _column(kind: Kind, path: Path, file_column: str | None) -> Iterator[_Mark]:
    """Return the split column of a table or key of JSON Lines, if there is one."""
    path, name = (path / imagefolder.TABLE, "file_name") if kind == "imagefolder" else (path, None)
    if path.is_file() and kind in ("imagefolder", "table"):
        for file_name, said, where in table.splits_of(path, name or file_column):
            yield _Mark(photo_name(file_name, where), said, where)
    elif kind == "imagefolder":
        lines = load_json_lines(path.with_name(imagefolder.LINES))
        yield from _keys((record.text("file_name"), record) for record in lines)
    elif kind == "jsonl":
        records = (record for record in records_of(path) if stated_name(record, file_column))
        yield from _keys((image_id_of(record, file_column), record) for record in records)
    elif kind == "coco":
        images = stream_records(str(path), "images")
        yield from _keys(
            (r.identifier("roster_id" if "roster_id" in r else "id"), r) for r in images
        )
    elif kind == "text_files":
        yield from _keys(records_beside(path))


def _keys(records: Iterable[tuple[str, Record]]) -> list[_Mark]:
    found = list(records)
    key = split_key([record.value for _, record in found], found[0][1].where if found else "")
    marks = [_Mark(n, str(record.value.get(key or "") or ""), record.where) for n, record in found]
    return marks if any(mark.said for mark in marks) else []


def _of_column(marks: Iterable[_Mark]) -> dict[str, Split]:
    splits: dict[str, Split] = {}
    for image_id, said, where in marks:
        split = split_said(said, where)
        if splits.setdefault(image_id, split) != split:
            problem = f"{image_id!r} is of {split} here and of {splits[image_id]} above"
            raise SettingError(where, problem, "give all captions of a photo the same split")
    return splits


def _of_folders(kind: Kind, photos: Path, roster: Roster) -> dict[str, Split]:
    if kind not in _WITH_FOLDERS:
        return {}
    said: dict[str, Split | None] = {}
    for sample in roster.samples:
        folder = sample.image_path.parent
        inside = folder.relative_to(photos) if folder.is_relative_to(photos) else Path()
        said[sample.image_id] = split_of(str(inside))
    known: dict[str, Split] = {name: split for name, split in said.items() if split is not None}
    if known and len(known) < len(said):
        names = [split for split in SPLITS if split in known.values()]
        log.warning(
            f"{roster.name}: folders of {len(known)} photos name the splits {', '.join(names)}, "
            f"but those of {len(said) - len(known)} name none, so folders are ignored; a column "
            f"{COLUMN!r} can define the split of every photo"
        )
        return {}
    return known
