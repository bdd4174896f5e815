"""Hugging Face's imagefolder: a folder of photos with ``metadata.jsonl``."""

from __future__ import annotations

from pathlib import Path

from captioning.data.json_files import Record, load_json_lines
from captioning.data.photo_folder import checked_file_name
from captioning.data.readers.entries import (
    CaptionEntry,
    ImageEntry,
    PhotoPolicy,
    Rules,
    roster_from_entries,
)
from captioning.data.readers.jsonl import captions_of
from captioning.data.roster import Roster
from captioning.loadable import loadable

CAPTION_KEYS = ("captions", "caption", "text")


@loadable
def read_imagefolder(
    *,
    name: str,
    folder: str | Path,
    with_photos: bool = True,
    missing_photos: PhotoPolicy = "error",
) -> Roster:
    """The captions of ``FOLDER/metadata.jsonl``, one line a photo.

    A line is ``{"file_name": "a.jpg", "captions": ["...", "..."]}``; ``caption`` or ``text`` may
    stand for ``captions``, with one text or a list. Other keys are left alone. The same folder
    loads with ``datasets.load_dataset("imagefolder", data_dir=FOLDER)``.

    Args:
        name: of the roster.
        folder: holds ``metadata.jsonl`` and the photos, which may lie in folders below.
        with_photos: False reads the captions alone.
        missing_photos: ``"error"`` or ``"drop"`` for a line whose photo is not there.

    Raises:
        FileNotFoundError: the folder or its ``metadata.jsonl`` is not there.
        ValueError: a line that is not as said, or a photo named twice.
    """
    annotations = Path(folder) / "metadata.jsonl"
    entries = [_entry(record) for record in load_json_lines(annotations)]
    return roster_from_entries(
        name=name,
        source=str(annotations),
        entries=entries,
        known_files=[entry.file_name for entry in entries],
        image_folder=folder if with_photos else None,
        rules=Rules(missing_photos=missing_photos),
    )


def _entry(record: Record) -> ImageEntry:
    file_name = checked_file_name(record.text("file_name"), record.where)
    texts = captions_of(record, CAPTION_KEYS)
    return ImageEntry(
        image_id=file_name,
        file_name=file_name,
        where=record.where,
        captions=tuple(CaptionEntry(key=str(key), text=text) for key, text in enumerate(texts)),
    )
