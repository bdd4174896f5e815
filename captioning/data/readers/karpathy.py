"""Read Karpathy's ``dataset_*.json`` (Karpathy and Fei-Fei, 2015): COCO, Flickr8k, Flickr30k."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from captioning.config.loadable import loadable
from captioning.data.json_files import Record
from captioning.data.json_streams import stream_records
from captioning.data.photo_folder import photo_name
from captioning.data.readers.entries import (
    CaptionEntry,
    ImageEntry,
    PhotoPolicy,
    Policy,
    Rules,
    check_unique,
    numbered,
    plain_captions,
    roster_from_entries,
    stated_ids,
    with_stated_keys,
)
from captioning.data.readers.many_samples import collector_paused
from captioning.data.readers.read_once import read_once
from captioning.data.readers.split_words import Split
from captioning.data.roster import Dropped, Roster

SPLITS = ("train", "val", "test", "restval")
# What files of others call them, in small letters.
_OTHER_NAMES = {
    "training": "train", "validation": "val", "valid": "val", "dev": "val", "testing": "test",
}  # fmt: skip


@loadable
@collector_paused()
def read_karpathy(
    *,
    name: str,
    annotations: str | Path,
    image_folder: str | Path | None,
    split: Split,
    restval: bool = True,
    missing_photos: PhotoPolicy = "error",
    missing_captions: Policy = "error",
    bad_captions: Policy = "error",
) -> Roster:
    """Read one split of a Karpathy file; captions are the raw sentences.

    Image ids are those under ``image_id`` or COCO's numbers (``cocoid``), else the file names.

    Args:
        annotations: ``dataset_coco.json``, ``dataset_flickr8k.json`` or ``dataset_flickr30k.json``.
        image_folder: base of ``filepath/filename``; None: captions alone.
        split: ``train``, ``val`` or ``test``.
        restval: whether ``train`` takes COCO's ``restval`` too, as usual (113,287 for 82,783).
        missing_photos, missing_captions, bad_captions: see `Rules`.

    Raises:
        FileNotFoundError: the file or the photo folder is not there.
        ValueError: an unknown split, or anything in the file that is not as said.
    """
    rules = Rules(
        missing_photos=missing_photos, missing_captions=missing_captions, bad_captions=bad_captions
    )
    if split not in SPLITS:
        raise ValueError(f"split must be one of {SPLITS}: got {split!r}")
    selected_splits = {split, "restval"} if split == "train" and restval else {split}
    entries, dropped = _read_entries(str(annotations), bad_captions)
    return roster_from_entries(
        name=name,
        source=str(annotations),
        entries=[entry for entry_split, entry in entries if entry_split in selected_splits],
        known_files=[entry.file_name for _, entry in entries],
        image_folder=image_folder,
        rules=rules,
        dropped=dropped,
    )


@read_once
def _read_entries(
    annotations: str, bad_captions: Policy
) -> tuple[list[tuple[str, ImageEntry]], list[Dropped]]:
    """Return all images with their splits, and the captions that are left out."""
    sentence_ids: list[str | int] = []
    dropped: list[Dropped] = []
    bad = dropped if bad_captions == "drop" else None
    entries = [
        (_split_of(record), _entry(record, sentence_ids, bad))
        for record in stream_records(annotations, "images")
    ]
    check_unique([entry for _, entry in entries])
    are_numbers = set(map(type, sentence_ids)) == {int}
    known_ids = set(sentence_ids if are_numbers else map(str, sentence_ids))
    if len(known_ids) < len(sentence_ids):
        _name_repeated(annotations)
    return entries, dropped


def _name_repeated(annotations: str) -> None:
    """Raise an error for the first sentence with a repeated id."""
    known_ids: dict[str, str] = {}
    for record in stream_records(annotations, "images"):
        for sentence in record.records("sentences"):
            if "sentid" in sentence:
                sentence.unique_identifier("sentid", known_ids, "sentid")


def split_named(name: Any) -> str | None:
    """Map a file's split name to a split (``restval`` to ``train``); None for other names."""
    split = _known_split(name)
    return "train" if split == "restval" else split


def _known_split(name: Any) -> str | None:
    """Return one of `SPLITS`, or None."""
    plain = name.lower() if isinstance(name, str) else ""
    plain = _OTHER_NAMES.get(plain, plain)
    return plain if plain in SPLITS else None


def _split_of(record: Record) -> str:
    split = _known_split(record.text("split"))
    if split is None:
        raise record.invalid("split", f"one of {SPLITS}")
    return split


def _entry(
    record: Record, sentence_ids: list[str | int], dropped: list[Dropped] | None
) -> ImageEntry:
    file_name = record.text("filename")
    if "filepath" in record:
        file_name = f"{record.text('filepath')}/{file_name}"
    file_name = photo_name(file_name, record.where)
    id_key = next((key for key in ("image_id", "cocoid") if key in record), None)
    image_id = file_name if id_key is None else record.identifier(id_key)
    sentences = record.items("sentences")
    captions = _plain(sentences, sentence_ids) or numbered(
        _sentences(record, sentence_ids, dropped is not None), dropped
    )
    said = stated_ids(record.value.get("sample_ids"))
    return ImageEntry(
        image_id=image_id,
        file_name=file_name,
        where=record.where,
        captions=with_stated_keys(captions, image_id, said, len(sentences)),
    )


def _plain(sentences: list[Any], known_ids: list[str | int]) -> tuple[CaptionEntry, ...] | None:
    """Return an image's captions if none needs special handling, and register their ids."""
    try:
        texts = [sentence["raw"] for sentence in sentences]
        ids = [sentence["sentid"] for sentence in sentences]
    except (KeyError, TypeError):
        return None
    if set(map(type, ids)) != {int} or min(ids) < 0:
        return None
    captions = plain_captions(texts)
    if captions is not None:
        known_ids += ids
    return captions


def _sentences(
    record: Record, known_ids: list[str | int], may_be_bad: bool
) -> Iterator[tuple[Any, str]]:
    """Return captions with their locations, and register their ids."""
    for sentence in record.records("sentences"):
        if "sentid" in sentence:
            number = sentence.value["sentid"]
            identifier = sentence.identifier("sentid")
            known_ids.append(number if type(number) is int else identifier)
        read = sentence.text_or_odd if may_be_bad else sentence.text
        yield read("raw"), f"{sentence.where}: 'raw'"
