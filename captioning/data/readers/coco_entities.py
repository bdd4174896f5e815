"""Read COCO Entities (Cornia et al., 2019): COCO captions with noun chunks and detected boxes.

The released file maps image ids to captions, and each caption to its words' detection classes
(``det_sequences``), its grounded noun chunks with their class (``noun_chunks``), the boxes of each
class (``detections``) and its ``split``. As in the release, a chunk's regions are all boxes of its
class; a region's label is the class. Words of a chunk without a detection have the class ``_``:
they become a phrase without regions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from captioning.config.loadable import loadable
from captioning.config.setting_error import SettingError
from captioning.data.json_files import Record, as_record, is_number, load_json
from captioning.data.photo_folder import PhotoFolder
from captioning.data.readers.entries import (
    BoxEntry,
    CaptionEntry,
    ImageEntry,
    PhotoPolicy,
    Policy,
    Rules,
    normalised,
    roster_from_entries,
)
from captioning.data.readers.many_samples import collector_paused
from captioning.data.roster import Dropped, Roster
from captioning.types import Box, Phrase

SPLITS = ("train", "val", "test")
UNMATCHED = "_"
NO_BOX = "a noun chunk has no box"
FILE_NAMES = (
    "train2014/COCO_train2014_{:012d}.jpg",
    "val2014/COCO_val2014_{:012d}.jpg",
    "COCO_train2014_{:012d}.jpg",
    "COCO_val2014_{:012d}.jpg",
    "{:012d}.jpg",
)
Boxes = dict[tuple[int, str], Box]  # by detection and class


@loadable
@collector_paused()
def read_coco_entities(
    *,
    name: str,
    annotations: str | Path,
    image_folder: str | Path | None,
    split: str,
    drop_unmatched: bool = False,
    missing_photos: PhotoPolicy = "error",
    bad_boxes: Policy = "error",
) -> Roster:
    """Read one split: captions with phrases, and images with boxes.

    Args:
        annotations: ``coco_entities_release.json``.
        image_folder: COCO 2014's photos, or the parent of ``train2014`` and ``val2014``; None for
            the text alone.
        split: ``"train"``, ``"val"`` or ``"test"``.
        drop_unmatched: leave out captions with a noun chunk that has no box, as the authors do in
            validation and test.
        missing_photos, bad_boxes: see `Rules`.

    Raises:
        FileNotFoundError: the file or the photo folder is not there.
        ValueError: anything in the file that is not as said, or another split.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {SPLITS}: got {split!r}")
    needs_folder = missing_photos != "keep" or Path(image_folder or "").is_dir()
    folder = PhotoFolder(folder=image_folder) if image_folder and needs_folder else None
    dropped: list[Dropped] = []
    entries, known_files = [], []
    for image_id, image in load_json(annotations).members():
        file_name = _file_name(image_id, image.where, folder)
        known_files.append(file_name)
        captions, boxes = _captions(image, split)
        accepted = [entry for entry, complete in captions if complete or not drop_unmatched]
        if drop_unmatched:
            rejected = (entry for entry, complete in captions if not complete)
            items = (f"{file_name}: {entry.text}" for entry in rejected)
            dropped += [Dropped(item=item, rule=NO_BOX) for item in items]
        if accepted:
            entries.append(
                ImageEntry(
                    image_id=image_id,
                    file_name=file_name,
                    where=image.where,
                    captions=tuple(accepted),
                    boxes=tuple(
                        BoxEntry(box=box, label=label, where=f"{image.where}: detection {number}")
                        for (number, label), box in boxes.items()
                    ),
                )
            )
    return roster_from_entries(
        name=name,
        source=str(annotations),
        entries=entries,
        known_files=known_files,
        image_folder=image_folder,
        rules=Rules(missing_photos=missing_photos, bad_boxes=bad_boxes),
        dropped=dropped,
    )


def _file_name(image_id: str, where: str, folder: PhotoFolder | None) -> str:
    if not image_id.isascii() or not image_id.isdigit() or len(image_id) > 12:
        raise SettingError(where, "image ids must be COCO's numbers", "get the file again")
    names = [form.format(int(image_id)) for form in FILE_NAMES]
    if folder is None:
        return names[-1]
    return next((name for name in names if folder.find(name) is not None), names[0])


def _captions(image: Record, split: str) -> tuple[list[tuple[CaptionEntry, bool]], Boxes]:
    """Return an image's captions (with a flag whether all chunks have boxes) and its boxes."""
    records: list[tuple[str, Record, str]] = []
    boxes: Boxes = {}
    for number, (caption, record) in enumerate(image.members()):
        if record.text("split") not in SPLITS:
            raise record.invalid("split", f"one of {SPLITS}")
        if record.text("split") == split:
            records.append((caption, record, str(number)))
            boxes |= _boxes(record)
    position = {key: place for place, key in enumerate(boxes)}
    return [_caption(*item, position) for item in records], boxes


def _boxes(record: Record) -> Boxes:
    """Return the detections of a caption's classes."""
    boxes: Boxes = {}
    detections = as_record(record.get("detections"), f"{record.where}: detections")
    for label in detections.value:
        for item in detections.items(label):
            is_pair = isinstance(item, list) and len(item) == 2 and isinstance(item[0], int)
            box = item[1] if is_pair else None
            if not isinstance(box, list) or len(box) != 4 or not all(map(is_number, box)):
                raise detections.invalid(label, "a list of [number, [x1, y1, x2, y2]]")
            x1, y1, x2, y2 = map(float, box)
            boxes[item[0], label] = (x1, y1, x2, y2)
    return boxes


def _caption(
    caption: str, record: Record, key: str, position: dict[tuple[int, str], int]
) -> tuple[CaptionEntry, bool]:
    words, classes = caption.split(" "), record.items("det_sequences")
    if len(words) != len(classes):
        raise record.invalid("det_sequences", f"a list of {len(words)}, one for each word")
    text = normalised(caption, record.where)
    if text != caption:
        problem = "white space at the caption's ends, or several in a row"
        raise SettingError(record.where, problem, "get the file again")
    starts = [sum(len(word) + 1 for word in words[:number]) for number in range(len(words) + 1)]
    phrases = []
    for first, end, label in _chunks(words, classes, record):
        regions = [number for (_, box_label), number in position.items() if box_label == label]
        phrases.append(
            Phrase(
                start=starts[first],
                text=caption[starts[first] : starts[end] - 1],
                chain_id=label,
                kinds=() if label == UNMATCHED else (label,),
                regions=tuple(regions),
            )
        )
    is_complete = all(phrase.regions for phrase in phrases)
    return CaptionEntry(key=key, text=text, phrases=tuple(phrases)), is_complete


def _chunks(
    words: Sequence[str], classes: Sequence[object], record: Record
) -> Iterator[tuple[int, int, str]]:
    """Return spans of words with their class; chunks separate adjacent spans of one class."""
    chunks = [_pair(item, record) for item in record.items("noun_chunks")]
    place = 0
    for label, group in groupby(classes):
        end = place + len(list(group))
        if label is not None and not isinstance(label, str):
            raise record.invalid("det_sequences", "a list of texts and nulls")
        while label is not None and place < end:
            of_label = (text for text, chunk_label in chunks if chunk_label == label)
            sizes = [
                len(text) for text in of_label if tuple(words[place : place + len(text)]) == text
            ]
            size = min(max(sizes, default=end - place), end - place)
            yield place, place + size, label
            place += size
        place = end


def _pair(item: object, record: Record) -> tuple[tuple[str, ...], str]:
    """Return a noun chunk's words and class."""
    if not isinstance(item, list) or len(item) != 2 or not all(isinstance(x, str) for x in item):
        raise record.invalid("noun_chunks", "a list of [text, class]")
    if not item[0].strip():
        raise record.invalid("noun_chunks", "a list of [text, class], no text blank")
    return tuple(item[0].split()), item[1]
