"""Read Arrow and Parquet files with a column of photos, in the layouts of `datasets`."""

from __future__ import annotations

import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path, PurePosixPath
from typing import Any

from captioning.config.loadable import loadable
from captioning.config.ranges import Name
from captioning.config.setting_error import Setting, SettingError
from captioning.data.photo_folder import PHOTO_SUFFIXES, PhotoFolder, checked_file_name, photo_name
from captioning.data.readers.arrow_columns import Columns, Rows, choose_columns, read_rows
from captioning.data.readers.arrow_files import table_files
from captioning.data.readers.caption_columns import CaptionPer, pieces_of_cell, separator_of
from captioning.data.readers.entries import (
    NO_CAPTION,
    PhotoPolicy,
    Policy,
    Rules,
    stated_id,
    stated_ids,
)
from captioning.data.readers.many_samples import collector_paused
from captioning.data.readers.packed import (
    Division,
    HeldOut,
    PackedPhoto,
    Part,
    good_and_bad,
    packed_roster,
)
from captioning.data.readers.record_keys import answer_of, texts_of
from captioning.data.readers.split_words import split_said
from captioning.data.roster import Roster
from captioning.runtime.file_lock import locked
from captioning.runtime.files import write_atomically
from captioning.vision.line_store import key_of
from captioning.vision.photo_places import open_photo, photo_stamp, row_path
from captioning.vision.shards.arrow_rows import arrow, arrow_errors, is_parquet, parquet

log = logging.getLogger(__name__)

_ROWS = 64  # that are in memory at once where Arrow files are written
_NUM_FIRST = 40  # photos that are looked for to find their folder
_NUM_COMPARED = 4  # rows of one id that are opened to see whether they hold one photo
_MAGIC = {b"\xff\xd8": ".jpg", b"\x89PNG": ".png", b"RIFF": ".webp"}


@loadable
@collector_paused()
def read_arrow(
    *,
    name: str,
    folder: str | Path,
    files: str | list[str] | None = None,
    part: Part = "all",
    held_out: HeldOut = 0.0,
    image_column: Name | None = None,
    image_folder: str | Path | None = None,
    caption_columns: str | list[str] | None = None,
    caption_per: CaptionPer | None = None,
    id_column: Name | None = None,
    own_ids: bool = False,
    split_column: Name | None = None,
    convert: bool = False,
    cache_folder: str | Path | None = None,
    missing_photos: PhotoPolicy = "error",
    missing_captions: Policy = "error",
    bad_captions: Policy | None = None,
) -> Roster:
    """Read photos and captions of Arrow or Parquet files; photos stay in the files.

    Photos are bytes in the file, or paths below the folder or the file's own folder. The image id
    is the file's name and the row's number, unless a column has ids. Rows of the same path are
    joined, and so are rows of the same id whose photos have the same name.

    Args:
        name: the roster's name.
        folder: folder written by ``save_to_disk`` or by the download of a hub's data set.
        files: names below the folder with ``{0..4}``, ``*`` and ``?``; None: those whose path has
            a word for the part (train; validation, valid, val, dev; test).
        part: the data's part; see ``held_out``.
        held_out: not 0: all files are one set; ``"val"`` and ``"test"`` get this share each, by a
            hash of the image id, and ``"train"`` the rest.
        image_column: None: the one with a usual name, such as ``image``.
        image_folder: further base of relative paths of photos; None: ``folder`` and the file's.
        caption_columns: columns with texts or lists of texts; ``sentences.raw`` is a field of
            structures. None: the column with a usual name, such as ``captions``, or a chat as LLaVA
            has it (``conversations``), of one question, whose answer is the caption.
        caption_per: separator of captions in one text, see `separator_of`.
        id_column: column with image ids; None: there is none.
        own_ids: without ``id_column``, image ids come from a column ``image_id``, or else from
            names of photos, if each photo has its own.
        split_column: column with words for the part; file names then do not count.
        convert: write Parquet files once as Arrow files, where photos open in any order as fast as
            from separate files; takes as much space again.
        cache_folder: where those go.
        missing_photos: ``"error"`` or ``"drop"`` for a row without photo; ``"keep"`` takes it, as
            where features were imported.
        missing_captions: the same for a row without captions.
        bad_captions: the same for a caption that is blank or not text; None: its photo counts as
            one without captions.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
        FileNotFoundError: no such folder or file.
        ValueError: a damaged file, no such column, or by the rules; names the file and the row.
    """
    division = Division(part=part, held_out=held_out)
    rules = Rules(missing_photos=missing_photos, missing_captions=missing_captions)
    if held_out and split_column is not None:
        raise ValueError(f"held_out={held_out} and split_column both define splits: set only one")
    paths = table_files(folder, files, "all" if held_out or split_column else part)
    names = (image_column, caption_columns, id_column, split_column)
    own_ids = own_ids and id_column is None
    tables = [
        _Table(path, prefix, choose_columns(path, *names, own_ids=own_ids))
        for path, prefix in _named(paths, Path(folder))
    ]
    if convert:
        if cache_folder is None:
            raise SettingError(
                folder,
                "converting Parquet to Arrow needs a folder",
                "give ",
                Setting("cache_folder"),
                " or set ",
                Setting("convert", "false"),
            )
        tables = _converted(tables, Path(cache_folder))
    places = [Path(one) for one in (folder, image_folder) if one is not None]
    found = (
        photo for table in tables for photo in _photos(table, places, part, own_ids, caption_per)
    )
    return packed_roster(
        name=name,
        source=f"{paths[0]} and {len(paths) - 1} more files",
        # over all files: the rows of a photo may begin in one and continue in the next
        photos=_own_ids(list(found)) if own_ids else _unique(_joined(found)),
        division=division,
        rules=rules,
        bad_captions=bad_captions,
    )


@dataclass(frozen=True, slots=True)
class _Table:
    """A file, the prefix of its row numbers in image ids, and the columns to read."""

    path: Path
    prefix: str
    columns: Columns


def _named(paths: Sequence[Path], folder: Path) -> Iterator[tuple[Path, str]]:
    """Return files with their names, including folders if two files share a name."""
    counts = Counter(path.stem for path in paths)
    for path in paths:
        plain = path.with_suffix("")
        inside = plain.relative_to(folder) if plain.is_relative_to(folder) else plain
        yield path, path.stem if counts[path.stem] == 1 else str(inside)


def _converted(tables: Sequence[_Table], cache_folder: Path) -> list[_Table]:
    """Convert the tables to Arrow files."""
    result = []
    for columns, group in groupby(tables, key=lambda table: table.columns):
        members = list(group)
        files = _as_arrow([table.path for table in members], columns.names(), cache_folder)
        result += [replace(t, path=file) for t, file in zip(members, files, strict=True)]
    return result


def _joined(photos: Iterator[PackedPhoto]) -> Iterator[PackedPhoto]:
    """Join the rows of one photo."""
    rows: dict[str, list[PackedPhoto]] = {}
    for photo in photos:
        if photo.same or rows:  # rows before the first that may be joined need not wait
            rows.setdefault(photo.same or photo.where, []).append(photo)
        else:
            yield photo
    for first, *others in rows.values():
        captions = (*first.captions, *(text for other in others for text in other.captions))
        bad = (*first.bad, *(rule for other in others for rule in other.bad))
        ids = [first, *others] if all(row.sample_ids for row in (first, *others)) else []
        sample_ids = tuple(one for row in ids for one in row.sample_ids)
        yield replace(first, captions=captions, bad=bad, sample_ids=sample_ids)


def _own_ids(photos: list[PackedPhoto]) -> list[PackedPhoto]:
    """Give photos the file's ids, or else their names if these are unique."""
    for ids in ([photo.said for photo in photos], [photo.name for photo in photos]):
        if all(ids):
            named = [
                # rows of one id and name are of one photo
                replace(p, image_id=i, same=p.same or (f"{i}\n{p.name}" if p.said == i else ""))
                for p, i in zip(photos, ids, strict=True)
            ]
            if _are_of_others(named):
                continue
            joined = list(_joined(iter(named)))
            if len({photo.image_id for photo in joined}) == len(joined):
                return joined
    return list(_joined(iter(photos)))


def _are_of_others(photos: Sequence[PackedPhoto]) -> bool:
    """Whether rows of one id, whose photos have no names, hold different ones; the first tell."""
    first: dict[str, str | Path] = {}
    pairs = (
        (first.setdefault(photo.same, photo.path), photo.path)
        for photo in photos
        if photo.same and photo.path and not photo.name
    )
    again = islice((pair for pair in pairs if pair[0] != pair[1]), _NUM_COMPARED)
    return any(open_photo(one).read() != open_photo(other).read() for one, other in again)


def _unique(photos: Iterator[PackedPhoto]) -> Iterator[PackedPhoto]:
    places: dict[str, str] = {}
    for photo in photos:
        if photo.image_id in places:
            raise SettingError(
                photo.where,
                f"image id {photo.image_id!r} is used twice, first at "
                f"{places[photo.image_id]}, and their photos have no name in common",
                "choose another ",
                Setting("id_column"),
                " or none",
            )
        places[photo.image_id] = photo.where
        yield photo


def first_names(
    files: Sequence[Path], image_column: str | None, caption_columns: str | Sequence[str] | None
) -> list[str]:
    """Return paths of the first external photos, to find their folder."""
    for file in files[:1]:
        for rows in read_rows(file, choose_columns(file, image_column, caption_columns, None)):
            pairs = zip(rows.paths, rows.has_bytes, strict=True)
            return [name for name, has_bytes in pairs if name and not has_bytes][:_NUM_FIRST]
    return []


def _photos(
    table: _Table,
    folders: Sequence[Path],
    part: Part,
    own_ids: bool,
    caption_per: CaptionPer | None,
) -> Iterator[PackedPhoto]:
    path, columns, suffix = table.path, table.columns, ""
    # metadata.parquet lies beside its photos
    near = [PhotoFolder(folder=place) for place in dict.fromkeys((*folders, path.parent))]
    names: Counter[str] = Counter()
    separator: str | None = None  # told by the first rows
    for rows in read_rows(path, columns):
        if separator is None:
            cells = (value for values in rows.captions for value in values)
            separator = separator_of(cells, caption_per, str(path))
        for place, values in enumerate(rows.captions):
            row = rows.first + place
            if not suffix and rows.has_bytes[place]:
                suffix = _suffix(path, columns.image, row)
            where = f"{path}: row {row}"
            if columns.split is not None and not _is_of(part, rows.splits[place], where):
                continue
            captions, bad = _captions(values, separator)
            image_id = _image_id(rows.ids[place], columns, f"{table.prefix}/{row}", where)
            name = rows.paths[place]
            photo = _photo(path, columns.image, rows, place, near, suffix, own_ids)
            same = str(photo) if isinstance(photo, Path) else ""
            if columns.image_id is not None:  # and the photo has the same name
                same = f"{image_id}\n{name}" if name else ""
            names.update([name or ""] if rows.has_bytes[place] else [])
            said, sample_ids = rows.said[place]
            yield PackedPhoto(
                *(image_id, photo, captions, NO_CAPTION, where, bad, same),
                sample_ids=stated_ids(sample_ids),
                said=stated_id(said),
                name=stated_id(name),
            )
    if not columns.said:
        _warn_of_rows(path, columns, names)


def _warn_of_rows(path: Path, columns: Columns, names: Counter[str]) -> None:
    """Log a warning if several rows without ids may be captions of one photo."""
    repeated = sum(count - 1 for name, count in names.items() if name)
    if columns.image_id is None and repeated:
        log.warning(
            f"{path}: {repeated} rows have photos of the same name as others, and are images of "
            "their own; if they are further captions of one photo, choose the column of its id: "
            "data=arrow data.id_column=NAME"
        )


def _is_of(part: Part, said: Any, where: str) -> bool:
    return split_said(said, where) == part or part == "all"


def _suffix(path: Path, column: str, row: int) -> str:
    """Return a photo's file suffix, detected from its bytes."""
    try:
        with open_photo(row_path(path, column, row)) as photo:
            start = photo.read(4)
    except OSError:
        return ".jpg"
    return next((suffix for magic, suffix in _MAGIC.items() if start.startswith(magic)), ".jpg")


def _image_id(value: Any, columns: Columns, default: str, where: str) -> str:
    if columns.image_id is None:
        return default
    text = str(value) if isinstance(value, str | int) else ""
    if not text or text != text.strip():
        raise SettingError(
            where, f"{columns.image_id!r} must be an id: got {str(value)[:60]!r}", "correct it"
        )
    return text


def _photo(
    path: Path,
    column: str,
    rows: Rows,
    place: int,
    folders: Sequence[PhotoFolder],
    suffix: str,
    named: bool,
) -> str | Path | None:
    """Return the location of a row's photo, with its name if ``named``; None if there is none."""
    name = rows.paths[place]
    if rows.has_bytes[place]:
        own = PurePosixPath(name or "").suffix.lower()
        row = rows.first + place
        if named and name and own in PHOTO_SUFFIXES and _is_plain(name):
            return row_path(path, column, row, f"/{name}")
        return row_path(path, column, row, own if own in PHOTO_SUFFIXES else suffix)
    if not name:
        return None
    name = photo_name(name, f"{path}: row {rows.first + place}")
    parts = name.lstrip("/").split("/")
    cuts = range(len(parts)) if name.startswith("/") else (0,)  # the fewest folders of a whole path
    ends = ("/".join(parts[cut:]) for cut in cuts)
    found = (folder.find(end) for end in ends for folder in folders)
    return next((photo for photo in found if photo is not None), None)


def _is_plain(name: str) -> bool:
    """Whether a name could be that of a file below a folder, written plainly."""
    try:
        return checked_file_name(name, "row") == name
    except ValueError:
        return False


def _captions(values: Sequence[Any], separator: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the captions of a row, and reasons for invalid captions."""
    texts = [text for value in values for text in (value if isinstance(value, list) else [value])]
    if texts and isinstance(texts[0], dict) and {"from", "role"} & texts[0].keys():
        asked = [{"role": "user"}] if len(texts) == 1 else []  # in a column of its own
        answer = answer_of([*asked, *texts])
        texts = texts if answer is None else [answer]
    elif any(isinstance(text, dict) for text in texts):
        pairs = ((text, isinstance(text, dict)) for text in texts)
        texts = [one for text, deep in pairs for one in (texts_of(text, "row") if deep else [text])]
    if separator:
        texts = [
            one
            for text in texts
            for one in (pieces_of_cell(text, separator) if isinstance(text, str) else [text])
        ]
    return good_and_bad([text for text in texts if text is not None])


def _as_arrow(files: Sequence[Path], columns: Sequence[str], cache_folder: Path) -> list[Path]:
    """Write Arrow files with the same rows, unless they exist.

    Opening photos in any order is fast there: Parquet is read by groups of rows, so that opening
    one photo reads all those of its group.

    Args:
        files: annotation files; those in Parquet are rewritten as Arrow.
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
    """Check the disk space: Arrow files need as much space as Parquet's photos."""
    needed = sum(file.stat().st_size for file in files)
    free = shutil.disk_usage(cache_folder).free
    if needed >= free:
        raise OSError(
            f"{cache_folder}: Arrow files need {needed / 1e9:.1f} GB, free are {free / 1e9:.1f}; "
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
