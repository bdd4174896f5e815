"""Read the questions of a chat dataset: one question per photo, answered by the caption."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from captioning.data.readers.arrow_columns import choose_columns, read_rows
from captioning.data.readers.arrow_files import all_files, of_photos
from captioning.data.readers.caption_columns import TURNS
from captioning.data.readers.jsonl import records_of
from captioning.data.readers.own.layout import recognise
from captioning.data.readers.record_keys import file_name_of, question_and_answer, stated_name
from captioning.data.readers.split_words import SPLITS
from captioning.data.roster import Roster
from captioning.runtime.model_folder import data_folder
from captioning.types import Sample
from captioning.vision.photo_places import place_in_shard

_SETTINGS = {
    "layout": "kind",
    "annotations": "annotations",
    "file_column": "file_column",
    "caption_columns": "caption_columns",
}
_Asked = tuple[str, str, str]  # name of the photo or place of its row, caption, question


def own_questions(folder: str | Path, roster: Roster, **reading: Any) -> dict[str, str]:
    """Return the question that each caption answers, by sample id; empty without questions.

    Args:
        folder: see `captioning.data.readers.own.own.read_own`.
        roster: roster read from it.
        **reading: the arguments with which it was read.
    """
    given = {name: reading[key] for key, name in _SETTINGS.items() if key in reading}
    layout = recognise(data_folder(folder), **given)
    if given.get("caption_columns") or layout.kind not in ("jsonl", "arrow"):
        return {}
    asked: Iterator[_Asked]
    if layout.kind == "jsonl":
        file_column = layout.file_column or given.get("file_column")
        part = reading.get("part")
        wanted = (part, None) if part in layout.splits else (*SPLITS, None)
        paths = (source.path for source in layout.sources if source.split in wanted)
        asked = chain.from_iterable(_of_lines(path, file_column) for path in paths)
    else:
        asked = chain.from_iterable(map(_of_rows, of_photos(all_files(layout.root))))
    by_caption = {(place, _plain(caption)): question for place, caption, question in asked}
    if not by_caption:
        return {}
    found = ((sample, _question(sample, by_caption)) for sample in roster.samples)
    return {sample.sample_id: question for sample, question in found if question}


def _question(sample: Sample, by_caption: dict[tuple[str, str], str]) -> str:
    keys = ((place, sample.caption) for place in _places(sample.image_path))
    return next((by_caption[key] for key in keys if key in by_caption), "")


def _places(path: Path) -> Iterator[str]:
    """Return the names of a photo, longest first, or the location of its row and file."""
    shard = place_in_shard(path)
    if shard is not None:
        yield f"{shard.file}:{shard.name[:9]}"
        yield shard.file
        return
    for start in range(len(path.parts)):
        name = Path(*path.parts[start:])
        yield name.as_posix()
        yield name.with_suffix("").as_posix()


def _plain(caption: str) -> str:
    return " ".join(caption.split())


def _of_lines(path: Path, file_column: str | None) -> Iterator[_Asked]:
    for record in records_of(path):
        key = next((key for key in TURNS if key in record), None)
        if key is None:
            return  # as the first line, so the others
        question, answer = _pair(record.value[key])
        if question and answer and stated_name(record, file_column):
            name = file_name_of(record, file_column)
            yield (path.parent / name).as_posix(), answer, question
            yield name, answer, question


def _of_rows(file: Path) -> Iterator[_Asked]:
    columns = choose_columns(file, None, None, None)
    if columns.captions[0] not in TURNS:
        return
    values = (
        (rows, place, _pair(cells[0]))
        for rows in read_rows(file, columns)
        for place, cells in enumerate(rows.captions)
    )
    for rows, place, (question, answer) in values:
        if not question or not answer:
            continue
        yield str(file), answer, question
        yield f"{file}:{rows.first + place:09d}", answer, question
        if not rows.has_bytes[place]:
            yield str(rows.paths[place]), answer, question


def _pair(turns: Any) -> Sequence[str | None]:
    pair = question_and_answer(turns) if isinstance(turns, list) else None
    return pair or (None, None)
