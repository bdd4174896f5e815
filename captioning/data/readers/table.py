"""Read text tables (CSV or TSV) with a column of file names and columns of captions."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from captioning.config.ranges import Name
from captioning.config.setting_error import Setting, SettingError
from captioning.data.line_files import ending, read_head, read_text
from captioning.data.photo_folder import PHOTO_SUFFIXES
from captioning.data.readers.caption_columns import (
    ADDRESSES,
    CaptionPer,
    file_columns,
    has_addresses,
    listed,
    pieces_of_cell,
    separator_of,
    usual_captions,
)
from captioning.data.readers.entries import (
    LEAVE_OUT,
    PhotoPolicy,
    Policy,
    Rules,
    roster_from_entries,
    stated_id,
)
from captioning.data.readers.joined_rows import Row, entries_of
from captioning.data.readers.many_samples import collector_paused
from captioning.data.readers.split_words import split_key
from captioning.data.roster import Dropped, Roster

ID = "image_id"  # which each photo has one of its own of, or none counts
SAMPLE_ID = "sample_id"  # of the caption in a row
_DELIMITER = re.compile(r'\s*"?sep=([^\r\n])"?\r?\n', re.IGNORECASE)  # a first line for Excel
_HEAD = 65_536  # bytes from which a table is recognised
_LONGEST_CELL = 1 << 24


class Columns(NamedTuple):
    """Relevant columns: positions, total number, and whether the first row is a header."""

    file: int
    captions: tuple[int, ...]
    number: int
    has_head: bool
    image_id: int | None = None
    sample_id: int | None = None


@collector_paused()
def read_table(
    *,
    name: str,
    annotations: str | Path,
    image_folder: str | Path | None,
    file_column: Name | None = None,
    caption_columns: str | list[str] | None = None,
    caption_per: CaptionPer | None = None,
    missing_photos: PhotoPolicy = "error",
    missing_captions: Policy = "error",
    bad_captions: Policy = "error",
) -> Roster:
    """Read captions of your own photos from a table.

    The first row names the columns; without it the table has two, of files and captions. Rows of
    the same file are joined. A column ``image_id`` holds the image ids if they are unique to
    photos; else they are the file names. A column ``sample_id`` holds the ids of captions. A cell
    such as ``["A dog.", "Dogs run."]`` holds several captions.

    Args:
        name: the roster's name.
        annotations: the file, in UTF-8; commas, semicolons, tabs or bars stand between cells, or
            what a first line such as ``sep=;`` says.
        image_folder: base of file names; None: captions alone.
        file_column: None: the one with a usual name, such as ``file_name`` or ``image``.
        caption_columns: None: those with a usual name, such as ``caption`` or ``text``, and
            ``caption_0``, ``caption_1`` and so on. Columns of the same name are all read.
        caption_per: separator of captions in a cell, see `separator_of`.
        missing_photos, missing_captions, bad_captions: see `Rules`; of ``bad_captions`` are rows of
            too few or too many cells, too.

    Raises:
        FileNotFoundError: the file or the photo folder is not there.
        ValueError: no such columns, or a row that is not as said; names file and row.
    """
    rules = Rules(
        missing_photos=missing_photos, missing_captions=missing_captions, bad_captions=bad_captions
    )
    dropped: list[Dropped] = []
    bad = dropped if bad_captions == "drop" else None
    text, where = read_text(annotations), str(annotations)
    columns = columns_of(text, where, file_column, caption_columns)
    cells = (row[place] for row in _full_rows(text, where, columns) for place in columns.captions)
    separator = separator_of(cells, caption_per, where)
    entries = entries_of(_rows(text, where, columns, bad, separator), bad)
    return roster_from_entries(
        name=name,
        source=where,
        entries=entries,
        known_files=[entry.file_name for entry in entries],
        image_folder=image_folder,
        rules=rules,
        dropped=dropped,
    )


def problem_of(
    path: Path, file_column: str | None, captions: str | Sequence[str] | None
) -> SettingError | None:
    """Return why a file is not a table with such columns; None if it is.

    Args:
        path: the file.
        file_column, captions: names of columns; None: usual ones.
    """
    try:
        columns_of(_begin(path), str(path), file_column, captions)
    except SettingError as error:
        return error
    return None


def column_names(path: Path) -> list[str]:
    """Return the names in a table's first row, in lower case; empty if unreadable."""
    with suppress(ValueError):
        return [cell.strip().lower() for cell in next(_cells(_begin(path), str(path)), (0, []))[1]]
    return []


def _begin(path: Path) -> str:
    """Return the first lines of a file.

    Raises:
        ValueError: it is no text.
    """
    text = read_head(path, _HEAD, errors="strict").replace("\r\n", "\n")
    text = text if "\n" in text else text.replace("\r", "\n")
    return text[: text.rfind("\n") + 1] or text


def file_names(
    path: Path, file_column: str | None, captions: str | Sequence[str] | None, number: int
) -> list[str]:
    """Return the first file names of a table, to find their folder."""
    text, where = read_text(path), str(path)
    rows = _rows(text, where, columns_of(text, where, file_column, captions), [])
    return [row.file_name for _, row in zip(range(number), rows, strict=False)]


def splits_of(path: Path, file_column: str | None) -> list[tuple[str, str, str]]:
    """Yield file name, split and location of each row with as many cells as the first.

    Args:
        path: a table; without a column of splits, see `split_key`, there are no rows.
        file_column: None: the one with a usual name.
    """
    text, where = read_text(path), str(path)
    rows = _cells(text, where)
    head = [cell.strip().lower() for cell in next(rows, (0, []))[1]]
    cells = [row for _, row in rows if len(row) == len(head)]
    column = split_key([dict(zip(head, row, strict=True)) for row in cells], where)
    if column is None:
        return []
    rows = _rows(text, where, columns_of(text, where, file_column, column), [])
    return [(row.file_name, cell, place) for row in rows for cell, place in row.captions]


def columns_of(
    text: str, where: str, file_column: str | None, captions: str | Sequence[str] | None
) -> Columns:
    """Determine the relevant columns of a table.

    Args:
        text: the table, or its beginning.
        where: the file.
        file_column, captions: names; None: usual ones.

    Raises:
        ValueError: no such column, or several could be meant; lists the columns.
    """
    first = next(_cells(text, where), (0, []))[1]
    head = [cell.strip().lower() for cell in first]
    if file_column is None and captions is None and _is_row(first):
        file = 0 if _is_photo(first[0]) else 1
        return Columns(file, (1 - file,), 2, has_head=False)
    if (
        file_column in ("0", "1")
        and captions is None
        and len(first) == 2
        and file_column not in head
    ):
        return Columns(int(file_column), (1 - int(file_column),), 2, has_head=False)
    files = file_columns(tuple(dict.fromkeys(head))) if file_column is None else [file_column]
    if not files and has_addresses(first):
        raise SettingError(where, *ADDRESSES)
    file = _position(head, file_column, files, where, "file_column")
    if head.count(head[file]) > 1:
        raise SettingError(where, f"column {head[file]!r} occurs twice", "rename one of the two")
    if captions is None:
        chosen = usual_captions(head, where)
    else:
        named = [captions] if isinstance(captions, str) else captions
        places = [_position(head, column, (), where, "caption_columns") for column in named]
        chosen = [place for named_place in places for place in _same(head, named_place)]
    ids = [head.index(name) if name in head else None for name in (ID, SAMPLE_ID)]
    return Columns(file, tuple(chosen), len(head), True, *ids)


def _same(head: Sequence[str], place: int) -> list[int]:
    return [other for other, name in enumerate(head) if name == head[place]]


def _is_row(cells: Sequence[str]) -> bool:
    """Whether the first row holds a photo and its caption already."""
    return len(cells) == 2 and sum(map(_is_photo, cells)) == 1


def _is_photo(cell: str) -> bool:
    has_suffix = PurePosixPath(cell.strip()).suffix.lower() in PHOTO_SUFFIXES
    return has_suffix and not has_addresses([cell])


def _position(
    head: Sequence[str], column: str | None, usual: Sequence[str], where: str, key: str
) -> int:
    if column is not None:
        if column.strip().lower() not in head:
            raise SettingError(where, f"no column {column!r}", f"it has {list(head)}")
        return head.index(column.strip().lower())
    if len(usual) != 1:
        problem = f"{usual} could be meant" if usual else "none has a usual name"
        raise SettingError(where, f"{problem} of the columns {list(head)}", "choose ", Setting(key))
    return head.index(usual[0])


def _cells(text: str, where: str) -> Iterator[tuple[int, list[str]]]:
    """Yield rows that are not blank, with the number of their last line."""
    said = _DELIMITER.match(text)
    above = 0 if said is None else said[0].count("\n")
    text = text if said is None else text[said.end() :]
    first = text.lstrip("\n").partition("\n")[0]
    delimiter = "\t" if ending(Path(where)) == ".tsv" else max(",;\t|", key=first.count)
    delimiter = delimiter if said is None else said[1]
    csv.field_size_limit(_LONGEST_CELL)
    file = io.StringIO(text, newline="")
    # not strict, a mark that is not closed would swallow the rows that follow
    rows = csv.reader(file, delimiter=delimiter, skipinitialspace=True, strict=True)
    begin = above + 1
    try:
        for row in rows:
            if any(cell.strip() for cell in row):
                yield above + rows.line_num, row
            begin = above + rows.line_num + 1
    except csv.Error as error:
        raise SettingError(
            f"{where}:{begin}",
            f"no row of a table ({error})",
            "close its quotation mark, or put the caption into marks and double those in "
            'it: """Stop"" says the sign."',
        ) from error


def _full_rows(text: str, where: str, columns: Columns) -> Iterator[list[str]]:
    """Yield rows with the right number of cells, up to an unreadable row."""
    with suppress(ValueError):
        for _, row in islice(_cells(text, where), int(columns.has_head), None):
            if len(row) == columns.number:
                yield row


def _rows(
    text: str, where: str, columns: Columns, dropped: list[Dropped] | None, separator: str = ""
) -> Iterator[Row]:
    rows = _cells(text, where)
    if columns.has_head:
        next(rows)
    for line, cells in rows:
        place = f"{where}:{line}"
        try:
            _check_number(cells, columns, place)
            captions = [
                caption
                for column in columns.captions
                for text in listed(cells[column], place)
                for caption in pieces_of_cell(text, separator)
            ]
        except SettingError as error:
            if dropped is None:
                raise error.or_else("leave such rows out by ", LEAVE_OUT) from error
            dropped.append(Dropped(item=place, rule=error.problem))
            continue
        if len(columns.captions) > 1:  # photos may have fewer captions than others
            captions = [text for text in captions if text.strip()]
        image_id = "" if columns.image_id is None else stated_id(cells[columns.image_id].strip())
        said = "" if columns.sample_id is None else cells[columns.sample_id].strip()
        pairs, sample_ids = [(text, place) for text in captions], (said,) if said else ()
        yield Row(cells[columns.file].strip(), pairs, place, image_id, sample_ids)


def _check_number(cells: Sequence[str], columns: Columns, place: str) -> None:
    if len(cells) == columns.number:
        return
    remedy = 'put captions with the delimiter in them into quotation marks ("...")'
    if len(cells) < columns.number:
        remedy = "write the cells or delimiters that are missing"
    raise SettingError(place, f"{len(cells)} cells in a table of {columns.number} columns", remedy)
