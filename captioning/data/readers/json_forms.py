"""Extract objects with photos and captions from JSON documents of various forms."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from captioning.config.setting_error import SettingError
from captioning.data.json_files import DECODER, Record, as_record, parse_json, shown
from captioning.data.line_files import ending, read_head, read_lines, read_text
from captioning.data.photo_folder import has_photo_suffix
from captioning.data.readers.caption_columns import (
    ADDRESSES,
    ID_COLUMNS,
    file_columns,
    has_addresses,
)
from captioning.data.readers.record_keys import file_name_of, names_photo_and_caption
from captioning.data.readers.split_words import COLUMN, split_of

LINES = (".jsonl", ".jsonlines", ".ndjson")
_HEAD = 1 << 16  # characters in which the first objects of a list are looked for
SUSPECTS = "suspects"  # captions in what ``captioning suspects`` writes for FiftyOne
SPLIT_TAGS = ("train", "val", "validation", "test")
_NUM_FIRST = 20  # objects by which a file is recognised
_END = re.compile(r"[\s,]*")  # of an object in a list
_DEEPEST = 4  # objects in objects that are looked into


def records_of(path: Path) -> Iterator[Record]:
    """Yield the objects of JSON Lines, or of a ``.json`` file in a supported form.

    A list of objects, alone or under a key; such lists, or names of photos with captions, under
    names of splits or classes; columns, as pandas writes them; tasks of Label Studio.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it has none of these forms.
    """
    text = read_text(path)
    if ending(path) != ".json" and not text.lstrip().startswith("["):
        for number, line in read_lines(path):
            yield _plain(as_record(parse_json(line, f"{path}:{number}"), f"{path}:{number}"))
        return
    try:
        value = parse_json(text, str(path))
    except ValueError:
        if not _are_lines(text):
            raise
        value = [parse_json(line, f"{path}:{number}") for number, line in read_lines(path)]
    found, fields = False, _fields(value)
    for record in _objects(value, str(path), {}, 0):
        found = True
        yield _plain(record, fields)
    if not found:
        problem = f"must be a list of objects: got {shown(value)}"
        raise SettingError(path, problem, "write one, or a line of JSON for each photo")


def first_records(path: Path) -> list[Record]:
    """Return the first objects of a file, without reading all of it.

    Raises:
        ValueError: see `records_of`.
    """
    head = read_head(path, _HEAD).lstrip()
    found, place = [], 1
    while head.startswith("[") and len(found) < _NUM_FIRST:
        try:
            value, place = DECODER.raw_decode(head, _END.match(head, place).end())  # type: ignore[union-attr]
        except (ValueError, RecursionError):
            break
        record = Record(value, str(path))
        found += [_plain(record, _fields([value]))] if isinstance(value, dict) else []
    return found or list(islice(records_of(path), _NUM_FIRST))


def _are_lines(text: str) -> bool:
    """Whether a text is JSON Lines in spite of its name."""
    lines = [line for line in text.split("\n", 3)[:2] if line.strip()]
    return len(lines) == 2 and all(line.strip()[0] + line.strip()[-1] == "{}" for line in lines)


def _objects(value: Any, where: str, added: dict[str, str], depth: int) -> Iterator[Record]:
    """Yield caption objects in a value; ``added`` holds keys of surrounding objects."""
    if isinstance(value, list):
        for position, one in enumerate(value):
            yield Record(
                added | as_record(one, f"{where}[{position}]").value, f"{where}[{position}]"
            )
        return
    if not isinstance(value, dict) or depth > _DEEPEST:
        return
    rows = _rows_of_columns(value)
    inner = {key: one for key, one in value.items() if isinstance(one, dict | list) and one}
    if rows is None and has_addresses(inner) and all(map(_are_texts, inner.values())):
        raise SettingError(where, *ADDRESSES)
    if rows is not None:
        yield from _objects(rows, where, added, depth)
    elif _is_record(value) and (depth or has_photo_suffix(file_name_of(Record(value, where)))):
        yield Record(added | value, where)
    elif has_photo_suffix(next(iter(value), "")):
        yield from _by_photo(value, where, added)
    elif any(_is_list_of_records(one) or split_of(key) for key, one in inner.items()):
        for key, one in inner.items():
            split = split_of(key)
            if split or _is_list_of_records(one):
                more = {COLUMN: split} if split else {}
                yield from _objects(one, f"{where}: {key}", added | more, depth + 1)
    elif inner and all(isinstance(one, dict) and _has_caption(one) for one in inner.values()):
        yield from _by_photo(value, where, added)
    elif len(inner) == len(value) and all(isinstance(one, dict) for one in inner.values()):
        for key, one in inner.items():  # classes
            yield from _objects(one, f"{where}: {key}", added, depth + 1)
    elif len(lists := [key for key, one in inner.items() if _is_list_by_ids(one)]) == 1:
        yield from _objects(inner[lists[0]], f"{where}: {lists[0]}", added, depth + 1)
    elif value and all(isinstance(one, str) or _are_texts(one) for one in value.values()):
        yield from _by_photo(value, where, added)


def _is_list_of_records(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and _is_record(value[0])


def _is_list_by_ids(value: Any) -> bool:
    """Whether objects have captions, and ids that may be the names of photos."""
    first = value[0] if isinstance(value, list) and value else None
    if not isinstance(first, dict):
        return False
    return any(key in first for key in ID_COLUMNS) and _has_caption(first)


def _is_record(value: Any) -> bool:
    return isinstance(value, dict) and names_photo_and_caption(
        _plain(Record(value, ""), _fields([value]))
    )


def _has_caption(value: Mapping[str, Any]) -> bool:
    return names_photo_and_caption(Record({"image": "a.jpg", **value}, ""))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _by_photo(values: Mapping[str, Any], where: str, added: dict[str, str]) -> Iterator[Record]:
    """Convert an object with photo names as keys to caption lines.

    Under a name is a caption, a list of captions, or an object with other keys of a line.
    """
    for name, value in values.items():
        others = value if isinstance(value, dict) else {"captions": value}
        if isinstance(value, str):
            others = {"caption": value}
        place = f"{where}[{name!r}]" if isinstance(value, dict) else f"{where}: {name!r}"
        named = {} if file_columns(tuple(others)) else {"image": name}
        yield Record({**added, **named, **others}, place)


def _rows_of_columns(value: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Convert columns by name, as pandas writes them, to rows; None for other values."""
    names, rows = value.get("columns"), value.get("data")
    if isinstance(names, list) and isinstance(rows, list) and rows and isinstance(rows[0], list):
        return [dict(zip(names, row, strict=False)) for row in rows]
    keys = (*file_columns(tuple(value)), *ID_COLUMNS)
    files = next((value[key] for key in keys if isinstance(value.get(key), dict | list)), None)
    columns = {
        k: v for k, v in value.items() if type(v) is type(files) and len(v) == len(files or ())
    }
    if files is None or len(columns) < 2 or not all(isinstance(n, str) for n in _cells(files)):
        return None
    return [
        dict(zip(columns, row, strict=True))
        for row in zip(*(_cells(column) for column in columns.values()), strict=True)
    ]


def _cells(column: list[Any] | dict[str, Any]) -> list[Any]:
    return list(column.values()) if isinstance(column, dict) else column


def _plain(record: Record, fields: Collection[str] = ()) -> Record:
    """Convert a record of Label Studio or FiftyOne to the usual form.

    Args:
        record: the record as the file has it.
        fields: fields of Label Studio, that tasks of the file have texts in.
    """
    value, data = record.value, record.value.get("data")
    if isinstance(data, dict) and ("annotations" in value or "predictions" in value):
        answers = _answers(value.get("annotations"))
        if not answers and not any("caption" in key for key in data):
            answers = _answers(value.get("predictions"))
        kept = {key: one for key, one in data.items() if not answers or "caption" not in key}
        return Record(_of_fields(answers, fields) | kept, record.where)
    if {"annotator", "annotation_id"} <= value.keys():
        return _from_min(record)
    if "filepath" not in value:
        return record
    labels = {key: found for key, one in value.items() if (found := _labels(one)) is not None}
    captions = labels.pop(SUSPECTS, None)
    tags = [tag for tag in value.get("tags") or () if tag in SPLIT_TAGS]
    said = {COLUMN: tags[0]} if len(tags) == 1 else {}
    named = {} if captions is None else {"captions": captions}
    return Record(value | labels | named | said, record.where)


def _from_min(record: Record) -> Record:
    """Convert a task of Label Studio's JSON-MIN whose only text field holds the captions."""
    about = {"id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time"}
    names = file_columns(tuple(record.value))
    fields = [key for key in record.value if key not in about and key not in names]
    if len(fields) != 1 or _has_caption(record.value):
        return record
    return Record({**record.value, "captions": record.value[fields[0]]}, record.where)


def _answers(given: Any) -> dict[str, list[str]]:
    """Return the texts written for a Label Studio task, by field, except cancelled ones."""
    tasks = [one for one in given or () if isinstance(one, dict) and not one.get("was_cancelled")]
    parts = [part for one in tasks for part in one.get("result") or () if isinstance(part, dict)]
    found: dict[str, list[str]] = {}
    for part in (part for part in parts if part.get("type") == "textarea"):
        text = part["value"].get("text")
        texts = [one for one in (text if isinstance(text, list) else [text]) if one]
        found.setdefault(str(part.get("from_name")), []).extend(texts)
    return {name: texts for name, texts in found.items() if texts}


def _of_fields(answers: dict[str, list[str]], fields: Collection[str]) -> dict[str, list[str]]:
    """Return answers as keys of a line: the only field, or the only caption field, and others."""
    usual = [name for name in fields if "caption" in name.lower()]
    own = usual if len(usual) == 1 else fields or answers
    if len(own) == 1:
        return {"captions" if name in own else name: texts for name, texts in answers.items()}
    return answers


def _fields(value: Any) -> set[str]:
    """Return the text fields of Label Studio tasks."""
    tasks = [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
    given = [one.get("annotations") or one.get("predictions") for one in tasks if "data" in one]
    return {name for one in given if isinstance(one, list) for name in _answers(one)}


def _labels(value: Any) -> str | list[str] | None:
    """Return the labels of a FiftyOne field; None for other values."""
    kind = value.get("_cls") if isinstance(value, dict) else None
    if kind == "Classifications":
        return [str(one.get("label")) for one in value.get("classifications") or ()]
    return str(value.get("label")) if kind == "Classification" else None
