"""Files around the captions of photos: which photos there are, their boxes, and the table."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from captioning.data.photo_folder import PHOTO_SUFFIXES, UNREAD_SUFFIXES
from captioning.inference.captioner import CaptionedPhoto
from captioning.types import Box

Format = Literal["text", "csv", "json"]


def find_photos(places: Sequence[str | Path]) -> list[str]:
    """Files as they are named, and the photos in folders and below, by name; each once.

    Hidden files and folders are left out. A file that is named need not have a photo's suffix, nor
    be there: it is a broken photo then.

    Raises:
        ValueError: there is none.
    """
    found = [path for place in places for path in _below(os.fspath(place))]
    if not found:
        shown = ", ".join(map(str, places))
        raise ValueError(f"{shown}: no photos here or below ({', '.join(sorted(PHOTO_SUFFIXES))})")
    return list(dict.fromkeys(found))


def _below(place: str) -> Iterator[str]:
    if not os.path.isdir(place):
        yield str(Path(place))
        return
    for folder, inner, names in os.walk(place):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in sorted(names):
            is_photo = os.path.splitext(name)[1].lower() in PHOTO_SUFFIXES | UNREAD_SUFFIXES
            if is_photo and not name.startswith("."):
                yield str(Path(folder, name))


def read_boxes(file: str | Path, photos: Sequence[str]) -> list[tuple[Box, ...]]:
    """The boxes of each photo, from a file of ``captioning find-objects``.

    A photo's ``image_id`` there is its path, its file name, or that without suffix.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not such a file, or a photo is not in it.
    """
    from captioning.data.steps.take_detections import read_detections

    regions = read_detections(file)[1]
    boxes = []
    for photo in photos:
        names = (photo, Path(photo).name, Path(photo).stem)
        name = next((name for name in names if name in regions), None)
        if name is None:
            raise ValueError(
                f"{file}: has no line with the image_id {names[1]!r} or {names[2]!r}: add the "
                "boxes of this photo, or an empty list"
            )
        boxes.append(tuple(region.box for region in regions[name]))
    return boxes


def table_lines(photo: CaptionedPhoto, form: Format) -> str:
    """The lines of a photo in the formats that have lines; one a caption.

    Args:
        photo: with its captions.
        form: ``"text"`` is ``file<TAB>caption``, ``"csv"`` is ``file,caption,score``.
    """
    name = shown_name(photo.photo)
    if form == "text":
        return "".join(f"{name}\t{one.caption}\n" for one in photo.captions)
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    rows = [[name, one.caption, _number(one.score)] for one in photo.captions]
    writer.writerows(rows)
    return lines.getvalue()


def json_table(photos: Sequence[CaptionedPhoto], *, num_captions: int) -> str:
    """A list of objects with ``file``, ``caption``, ``score``.

    With several captions a photo ``captions`` holds all of them; ``boxes`` and ``has_words`` (what
    must be included is) stand where there are any.
    """
    entries = []
    for photo in photos:
        entry: dict[str, Any] = {"file": shown_name(photo.photo)}
        entry |= _entry(photo.captions[0])
        if num_captions > 1:
            entry["captions"] = [_entry(one) for one in photo.captions]
        if photo.boxes:
            entry["boxes"] = [list(box) for box in photo.boxes]
        entries.append(entry)
    return json.dumps(entries, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _entry(one: Any) -> dict[str, Any]:
    entry = {"caption": one.caption, "score": _number(one.score)}
    return entry if one.satisfied is None else entry | {"has_words": one.satisfied}


def _number(score: float) -> float | None:
    """A score for files: none where the search found no caption."""
    return round(score, 6) if isfinite(score) else None


def shown_name(name: str) -> str:
    """A file's name as a line of text: what is no text in it is written as Python would."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
