"""Read Hugging Face's imagefolder: photos with ``metadata.jsonl`` or ``metadata.csv``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from captioning.config.loadable import loadable
from captioning.config.setting_error import SettingError
from captioning.data.json_files import load_json_lines
from captioning.data.readers.caption_columns import CaptionPer
from captioning.data.readers.entries import (
    PhotoPolicy,
    Policy,
    Rules,
    roster_from_entries,
    stated_id,
    stated_ids,
)
from captioning.data.readers.joined_rows import Row, entries_of
from captioning.data.readers.jsonl import caption_pairs
from captioning.data.readers.record_keys import CaptionKeys, no_captions
from captioning.data.readers.table import column_names, read_table
from captioning.data.roster import Dropped, Roster

CAPTION_KEYS = ("captions", "caption", "text")
LINES, TABLE = "metadata.jsonl", "metadata.csv"


@loadable
def read_imagefolder(
    *,
    name: str,
    folder: str | Path,
    with_photos: bool = True,
    caption_columns: str | list[str] | None = None,
    caption_per: CaptionPer | None = None,
    missing_photos: PhotoPolicy = "error",
    missing_captions: Policy = "error",
    bad_captions: Policy = "error",
) -> Roster:
    """Read the captions of ``FOLDER/metadata.jsonl`` or ``FOLDER/metadata.csv``.

    A line is ``{"file_name": "a.jpg", "captions": ["...", "..."]}``; ``caption`` or ``text`` may
    stand for ``captions``, with one text or a list, and ``caption_0``, ``caption_1`` and so on are
    all read. The image id is ``image_id`` if each photo has its own, else the file name. Other keys
    are left alone. A table has a column ``file_name``, and one of captions. Lines of the same photo
    add their captions. The same folder loads with ``datasets.load_dataset("imagefolder",
    data_dir=FOLDER)``.

    Args:
        name: the roster's name.
        folder: holds the metadata and the photos, which may lie in folders below.
        with_photos: False reads the captions alone.
        caption_columns: keys or columns of captions; None: those with the names above.
        caption_per: separator of captions in a cell of a table, see `separator_of`.
        missing_photos: ``"error"`` or ``"drop"`` for a line whose photo is not there.
        missing_captions, bad_captions: see `Rules`.

    Raises:
        FileNotFoundError: the folder or its metadata are not there.
        ValueError: a line that is not as said, or both files.
    """
    rules = Rules(
        missing_photos=missing_photos, missing_captions=missing_captions, bad_captions=bad_captions
    )
    lines, table = Path(folder) / LINES, Path(folder) / TABLE
    image_folder = folder if with_photos else None
    if lines.is_file() and table.is_file():
        raise SettingError(folder, f"has both {LINES} and {TABLE}", "keep one")
    if table.is_file():
        return read_table(
            name=name,
            annotations=table,
            image_folder=image_folder,
            file_column="file_name",
            caption_columns=caption_columns,
            caption_per=caption_per,
            missing_photos=missing_photos,
            missing_captions=missing_captions,
            bad_captions=bad_captions,
        )
    keys = CaptionKeys(CAPTION_KEYS, caption_columns)
    dropped: list[Dropped] = []
    entries = entries_of(_rows(lines, keys, rules), dropped if bad_captions == "drop" else None)
    return roster_from_entries(
        name=name,
        source=str(lines),
        entries=entries,
        known_files=[entry.file_name for entry in entries],
        image_folder=image_folder,
        rules=rules,
        dropped=dropped,
    )


def has_file_names(folder: Path) -> bool:
    """Whether the metadata of a folder name photos as imagefolder has it."""
    if (folder / TABLE).is_file():
        return "file_name" in column_names(folder / TABLE)
    with suppress(ValueError):
        return any("file_name" in record for record in islice(load_json_lines(folder / LINES), 1))
    return True  # the reader says what is wrong


def _rows(path: Path, keys: CaptionKeys, rules: Rules) -> Iterator[Row]:
    may_lack, may_be_bad = rules.missing_captions == "drop", rules.bad_captions == "drop"
    first, has_captions = None, False
    for record in load_json_lines(path):
        captions = caption_pairs(record, keys, may_lack=may_lack, may_be_bad=may_be_bad)
        first, has_captions = first or record, has_captions or bool(captions)
        ids = stated_id(record.value.get("image_id")), stated_ids(record.value.get("sample_ids"))
        yield Row(record.text("file_name"), captions, record.where, *ids)
    if first is not None and not has_captions:
        raise no_captions(first)
