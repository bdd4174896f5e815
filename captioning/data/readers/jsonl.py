"""Read a user's photos from JSON Lines (one object per line), or from a JSON list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from captioning.config.loadable import loadable
from captioning.config.ranges import Name
from captioning.config.setting_error import Setting, SettingError
from captioning.data.json_files import Record, is_number, shown
from captioning.data.readers.caption_columns import CaptionPer, pieces_of_cell, separator_of
from captioning.data.readers.entries import (
    BAD_CAPTION,
    NO_PHOTO,
    NO_TEXT,
    BoxEntry,
    ImageEntry,
    PhotoPolicy,
    Policy,
    Rules,
    normalised,
    numbered,
    roster_from_entries,
    stated_ids,
    with_stated_keys,
)
from captioning.data.readers.json_forms import records_of
from captioning.data.readers.many_samples import collector_paused
from captioning.data.readers.record_keys import (
    CaptionKeys,
    chat_captions,
    file_name_of,
    has_photo,
    no_captions,
    texts_of,
    value_at,
)
from captioning.data.roster import Dropped, Roster

CAPTION_KEYS = ("captions", "caption")


@loadable
@collector_paused()
def read_jsonl(
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
    bad_boxes: Policy = "error",
) -> Roster:
    """Read captions of your own photos.

    A line is ``{"image": "a.jpg", "caption": "..."}`` or ``{"image": ..., "captions": [...]}``,
    with an optional ``"image_id"`` (the file name if left out), optional ``"sample_ids"``
    (``IMAGE_ID#KEY`` of each of ``captions``) and optional ``"regions"``:
    ``[{"box": [x1, y1, x2, y2], "label": "dog", "score": 1.0}]`` in pixels. Lines of the same image
    add their captions; its regions stand in one of them. ``caption_2`` and so on are captions, too.
    Other names that data sets have, such as ``file_name`` and ``text``, may stand for the two. A
    chat about a photo, as LLaVA has it, is one question (``"conversations"`` or ``"messages"``),
    whose answer is the caption. Other keys are left alone.

    Args:
        name: the roster's name.
        annotations: the ``.jsonl`` file, or a ``.json`` file with a list of such objects.
        image_folder: base of relative ``image`` paths; None: captions alone.
        file_column, caption_columns: keys of file names and captions; None: those with usual names.
        caption_per: separator of captions in one text, see `separator_of`.
        missing_photos: ``"error"`` or ``"drop"`` for a line whose photo is not there.
        missing_captions: the same for a line without captions.
        bad_captions: the same for a caption with nothing visible.
        bad_boxes: the same for a box without area or outside its photo.

    Raises:
        FileNotFoundError: the file or the photo folder is not there.
        ValueError: a line that is not as said above.
    """
    dropped: list[Dropped] = []
    rules = Rules(
        missing_photos=missing_photos,
        missing_captions=missing_captions,
        bad_captions=bad_captions,
        bad_boxes=bad_boxes,
    )
    lines = _by_image(records_of(Path(annotations)), file_column, rules, dropped)
    keys = CaptionKeys(CAPTION_KEYS, caption_columns)
    separator = separator_of(_texts(lines, keys), caption_per, str(annotations))
    entries = [
        _entry(image_id, records, (file_column, keys, separator), rules, dropped)
        for image_id, records in lines.items()
    ]
    if (
        lines
        and not any(entry.captions for entry in entries)
        and not any(drop.rule in (BAD_CAPTION, NO_TEXT) for drop in dropped)
    ):
        raise no_captions(next(iter(lines.values()))[0])
    return roster_from_entries(
        name=name,
        source=str(annotations),
        entries=entries,
        known_files=[entry.file_name for entry in entries],
        image_folder=image_folder,
        rules=rules,
        dropped=dropped,
    )


def _texts(lines: dict[str, list[Record]], keys: CaptionKeys) -> Iterator[Any]:
    """Yield values under caption keys, up to a line with ambiguous keys."""
    with suppress(ValueError):
        for record in chain.from_iterable(lines.values()):
            yield from (value_at(record, key) for key in keys(record))


def _by_image(
    records: Iterable[Record], file_column: str | None, rules: Rules, dropped: list[Dropped]
) -> dict[str, list[Record]]:
    """Group records by image id; drop records without a single photo if the rules allow it.

    Raises:
        ValueError: no record has a photo, or by the rules.
    """
    lines: dict[str, list[Record]] = {}
    first: SettingError | None = None
    for record in records:
        try:
            file_name_of(record, file_column)
            lines.setdefault(image_id_of(record, file_column), []).append(record)
        except SettingError as error:
            first = first or error
            dropped.append(_without_name(record, file_column, rules, error))
    if first is not None and not lines:
        raise first
    return lines


def _without_name(
    record: Record, file_column: str | None, rules: Rules, error: SettingError
) -> Dropped:
    """Record that an entry without a single photo is dropped, or raise the error."""
    is_named = has_photo(record, file_column)
    key = "bad_captions" if is_named else "missing_photos"
    if getattr(rules, key) == "drop":
        rule = error.finding.removeprefix(f"{record.where}: ")
        return Dropped(item=record.where, rule=rule if is_named else NO_PHOTO)
    if is_named:
        raise error
    raise error.or_else("leave such entries out by ", Setting(key, "drop")) from error


def captions_of(record: Record) -> list[str]:
    """Return the captions of a line, under exactly one of `CAPTION_KEYS`.

    Raises:
        ValueError: none or several of the keys, an empty list, an empty caption.
    """
    pairs = caption_pairs(record, CaptionKeys(CAPTION_KEYS))
    return [normalised(text, where) for text, where in pairs]


def caption_pairs(
    record: Record, keys: CaptionKeys, *, may_lack: bool = False, may_be_bad: bool = False
) -> list[tuple[Any, str]]:
    """Return a line's captions as written, with their locations.

    Args:
        record: the line.
        keys: of captions.
        may_lack: whether a line may have no caption.
        may_be_bad: whether a caption may be no text; `numbered` leaves such out.

    Raises:
        ValueError: no keys or several that could be meant, an empty list, something else than
            texts.
    """
    present = keys(record)
    if not present:
        return _answers(record, keys, may_lack, may_be_bad)
    if may_lack:
        present = [key for key in present if value_at(record, key) != []]
    return [pair for key in present for pair in _pairs(record, key, may_be_bad)]


def _answers(
    record: Record, keys: CaptionKeys, may_lack: bool, may_be_bad: bool
) -> list[tuple[Any, str]]:
    """Return the answer of a chat, if no key holds captions."""
    try:
        answers = chat_captions(record)
    except SettingError as error:
        if not may_be_bad:
            raise
        return [(None, error.finding)]
    if answers is None and not may_lack:
        raise SettingError(
            record.where, f"needs exactly one of the keys {list(keys.usual)}: has none", "add one"
        )
    return [*(answers or ())]


def _pairs(record: Record, key: str, may_be_bad: bool) -> list[tuple[Any, str]]:
    """Return the captions under a key."""
    value = value_at(record, key)
    where = f"{record.where}: {key!r}"
    if value == []:
        raise SettingError(record.where, f"{key!r} is empty", "add a caption or remove the line")
    places = [(value, where)]
    if isinstance(value, list):
        places = [(one, f"{record.where}: {key}[{n}]") for n, one in enumerate(value)]
    pairs: list[tuple[Any, str]] = []
    for position, (one, place) in enumerate(places):
        try:
            pairs += [(text, place) for text in texts_of(one, place)]
        except TypeError as error:
            if not may_be_bad:
                expected = f"texts (item {position} is none)" if one is not value else "a list"
                raise SettingError(
                    record.where, f"{key!r} must be {expected}: got {shown(value)}", "correct it"
                ) from error
            pairs.append((one, place))
    return pairs


def image_id_of(record: Record, file_column: str | None = None) -> str:
    """Return the image id of a line: its own, or the file name."""
    if "image_id" in record:
        return record.identifier("image_id")
    return file_name_of(record, file_column)


def _entry(
    image_id: str,
    records: list[Record],
    columns: tuple[str | None, CaptionKeys, str],
    rules: Rules,
    dropped: list[Dropped],
) -> ImageEntry:
    file_column, keys, separator = columns
    first = records[0]
    file_name = file_name_of(first, file_column)
    pairs: list[tuple[Any, str]] = []
    boxes: list[BoxEntry] = []
    for record in records:
        own_name = file_name_of(record, file_column)
        if own_name != file_name:
            at = f"{file_name!r} at {first.where} and of {own_name!r} here"
            problem, remedy = f"image_id {image_id!r} is of {at}", "give each image its own id"
            raise SettingError(record.where, problem, remedy)
        pairs += caption_pairs(
            record,
            keys,
            may_lack=rules.missing_captions == "drop",
            may_be_bad=rules.bad_captions == "drop",
        )
        record_boxes = _boxes(record)
        if record_boxes and boxes:
            problem = f"regions of {image_id!r} stand on two lines"
            raise SettingError(record.where, problem, "join them")
        boxes += record_boxes
    if separator:
        pairs = [
            (one, place)
            for text, place in pairs
            for one in (pieces_of_cell(text, separator) if isinstance(text, str) else [text])
        ]
    captions = numbered(pairs, dropped if rules.bad_captions == "drop" else None)
    sample_ids = [one for r in records for one in stated_ids(r.value.get("sample_ids"))]
    return ImageEntry(
        image_id=image_id,
        file_name=file_name,
        where=first.where,
        captions=with_stated_keys(captions, image_id, sample_ids, len(pairs)),
        boxes=tuple(boxes),
    )


def _boxes(record: Record) -> list[BoxEntry]:
    if "regions" not in record:
        return []
    return [_box(region) for region in record.records("regions")]


def _box(region: Record) -> BoxEntry:
    x1, y1, x2, y2 = region.numbers("box", 4)
    label = " ".join(region.text("label").lower().split())
    if not label:
        raise region.invalid("label", "a class name")
    score = region.value.get("score", 1.0)
    if not is_number(score) or not 0 <= score <= 1:
        raise region.invalid("score", "a number in [0, 1]")
    return BoxEntry(box=(x1, y1, x2, y2), label=label, where=region.where, score=float(score))
