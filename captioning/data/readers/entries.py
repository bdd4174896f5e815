"""Build a `Roster` from the entries of a reader, with the rules that all formats share.

Each run of white space in a caption becomes one space (some captions have line breaks, which break
line-based scorers). Every omission is recorded with its rule.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

from captioning.config.setting_error import Setting, SettingError
from captioning.data.annotated_boxes import checked_box, photo_size, scaled_box
from captioning.data.json_files import checked_text
from captioning.data.photo_folder import GivenName, PhotoFolder, given_name
from captioning.data.readers.many_samples import quick_sample
from captioning.data.roster import Dropped, Roster, build_roster
from captioning.types import Box, Phrase, Region, Sample

Policy = Literal["error", "drop"]
PhotoPolicy = Literal["error", "drop", "keep"]
POLICIES: dict[str, tuple[str, ...]] = {
    "missing_photos": ("error", "drop", "keep"),
    "missing_captions": ("error", "drop"),
    "bad_captions": ("error", "drop"),
    "bad_boxes": ("error", "drop"),
}

_DATA_JUICER = re.compile(r"<\|?__dj__\w+\|?>")
NO_PHOTO = "photo missing"
LEAVE_OUT = Setting("bad_captions", "drop")
NO_CAPTION = "photo without caption"
UNNAMED = "photo without caption or entry"
UNREADABLE = "photo unreadable"
BAD_CAPTION = "caption empty"
NO_TEXT = "caption is no text"
BAD_BOX = "box outside the photo or without area"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxEntry:
    """An annotated box, in pixels of the annotated photo size."""

    box: Box
    label: str
    where: str
    score: float = 1.0


class CaptionEntry(NamedTuple):  # made in a third of a frozen dataclass's time
    """A caption; its sample id is ``IMAGE_ID#KEY``."""

    key: str
    text: str
    phrases: tuple[Phrase, ...] = ()


class ImageEntry(NamedTuple):
    """One image of an annotation file.

    Attributes:
        image_id: unique id.
        file_name: photo relative to the photo folder.
        where: file and place of the annotation, for messages.
        captions: its captions, already through `normalised`.
        boxes: its boxes; phrases refer to them by position.
        size: ``(width, height)`` that the boxes are for, or None for the photo's own.
    """

    image_id: str
    file_name: str
    where: str
    captions: tuple[CaptionEntry, ...]
    boxes: tuple[BoxEntry, ...] = ()
    size: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules for mismatches between annotations and photos: ``"error"`` or ``"drop"``.

    Attributes:
        missing_photos: an image of the split has no photo. ``"keep"``: no photo is looked for, as
            where features were imported; boxes stay in pixels of the annotated size.
        missing_captions: an image of the annotations has no caption.
        bad_captions: a caption is blank, or not text.
        bad_boxes: a box without area or outside its photo (COCO's official files have two); one
            over the edge by less than a pixel is clipped in any case.
    """

    missing_photos: PhotoPolicy = "error"
    missing_captions: Policy = "error"
    bad_captions: Policy = "error"
    bad_boxes: Policy = "error"

    def __post_init__(self) -> None:
        for field, policies in POLICIES.items():
            if getattr(self, field) not in policies:
                raise ValueError(f"{field} must be one of {policies}: got {getattr(self, field)!r}")


def normalised(caption: str, where: str) -> str:
    """Replace each run of white space in a caption by one space.

    Raises:
        ValueError: the caption has nothing visible, or characters that UTF-8 cannot hold.
    """
    caption = checked_text(caption, where)
    if "__dj__" in caption:  # marks of data-juicer: of photos, and of a text's end
        caption = _DATA_JUICER.sub(" ", caption)
    if "  " in caption or not caption.isprintable() or not caption.isascii():
        caption = " ".join(caption.split())
    caption = caption.strip()
    if not caption[:1].isalnum() and not any(
        character.isprintable() and character != " " for character in caption
    ):
        raise SettingError(where, "the caption is empty", "write one or remove the entry")
    return caption


def numbered(
    captions: Iterable[tuple[Any, str]], dropped: list[Dropped] | None = None
) -> tuple[CaptionEntry, ...]:
    """Number ``(caption, where)`` pairs as entries with keys 0, 1, ...

    Args:
        captions: captions as the file has them; values other than text only with ``dropped``.
        dropped: bad captions are added to it, and their keys are left free; None: they are errors.

    Raises:
        ValueError: see `normalised`.
    """
    entries = []
    for number, (caption, where) in enumerate(captions):
        if dropped is not None and not isinstance(caption, str):
            dropped.append(Dropped(item=where, rule=NO_TEXT))
            continue
        try:
            entries.append(CaptionEntry(key=str(number), text=normalised(caption, where)))
        except SettingError as error:
            if dropped is None:
                raise error.or_else("leave such captions out by ", LEAVE_OUT) from error
            dropped.append(Dropped(item=where, rule=BAD_CAPTION))
    return tuple(entries)


def stated_ids(value: Any) -> tuple[str, ...]:
    """Return a file's ``sample_ids``, the ids of its captions; empty if missing."""
    is_list = isinstance(value, list) and all(isinstance(one, str) for one in value)
    return tuple(value) if is_list else ()


def stated_id(value: Any) -> str:
    """Return a file's ``image_id``, a number or one-line text; empty if missing."""
    text = str(value) if type(value) in (int, str) else ""
    return text if [text] == text.strip().splitlines() else ""


def sample_keys(image_id: str, sample_ids: Sequence[str], number: int) -> tuple[str, ...]:
    """Return the keys of an image's captions from their ids ``IMAGE_ID#KEY``.

    Args:
        image_id: the image's id.
        sample_ids: sample ids in the file; empty: it has none.
        number: number of the captions.

    Returns:
        0, 1, ... where they are not ids of this image's captions, one each.
    """
    head = f"{image_id}#"
    keys = tuple(one.removeprefix(head) for one in sample_ids if one.startswith(head))
    fit = len(keys) == len(sample_ids) == len({*keys}) == number and all(keys)
    return keys if fit else tuple(map(str, range(number)))


def with_stated_keys(
    captions: tuple[CaptionEntry, ...], image_id: str, sample_ids: Sequence[str], number: int
) -> tuple[CaptionEntry, ...]:
    """Return `numbered` captions with the keys of their given ids, see `sample_keys`.

    Args:
        captions: captions of an image.
        image_id: the image's id.
        sample_ids: sample ids in the file; empty: it has none.
        number: number of the captions in the file, with those that were left out.
    """
    if not sample_ids:
        return captions
    keys = sample_keys(image_id, sample_ids, number)
    return tuple(caption._replace(key=keys[int(caption.key)]) for caption in captions)


def plain_captions(texts: Sequence[Any]) -> tuple[CaptionEntry, ...] | None:
    """Return `numbered` captions of an image, checked together.

    Args:
        texts: the values found in place of texts.

    Returns:
        None where `normalised` would refuse or change one, or may: each is then checked.
    """
    try:
        text = " ".join(texts)
    except TypeError:
        return None
    first = "".join([caption[:1] for caption in texts])
    is_plain = text.isascii() and text.isprintable() and "  " not in text and text.strip() == text
    if not is_plain or not first.isalnum():
        return None
    keys = map(str, range(len(texts)))
    return tuple(map(CaptionEntry._make, zip(keys, texts, repeat(()), strict=False)))


def selected(
    entries: Sequence[ImageEntry], requested: Mapping[str, str] | None, source: str
) -> list[ImageEntry]:
    """Select entries whose ``image_id`` is in ``requested`` (id to ``FILE:LINE``), in order.

    Raises:
        ValueError: ``requested`` names an image that ``source`` does not have.
    """
    if requested is None:
        return list(entries)
    known_ids = {entry.image_id for entry in entries}
    unknown = [image_id for image_id in requested if image_id not in known_ids]
    if unknown:
        raise SettingError(
            requested[unknown[0]],
            f"the split names {unknown[0]!r}, which {source} does not have{_and_more(unknown)}",
            "is the list for other annotations?",
        )
    return [entry for entry in entries if entry.image_id in requested]


def check_unique(entries: Sequence[ImageEntry]) -> None:
    """Raise an error if two entries share an image id or a photo."""
    for field in ("image_id", "file_name"):
        values = list(map(attrgetter(field), entries))
        if len(set(values)) == len(values):
            continue
        first_places: dict[str, str] = {}
        for entry, value in zip(entries, values, strict=True):
            if value in first_places:
                problem = f"{field} {value!r} is used twice, first at {first_places[value]}"
                raise SettingError(entry.where, problem, "remove one of the two")
            first_places[value] = entry.where


def roster_from_entries(
    *,
    name: str,
    source: str,
    entries: Sequence[ImageEntry],
    known_files: Iterable[str],
    image_folder: str | Path | None,
    rules: Rules,
    dropped: Sequence[Dropped] = (),
) -> Roster:
    """Build the roster from the entries of one split.

    Args:
        name, source: name of the roster, and the annotation file for messages.
        known_files: photos in or out of the split; others in the folder are recorded as dropped.
        image_folder: None for text only: ``image_path`` is then the bare file name.
        rules, dropped: rules for mismatches, and the reader's own omissions.

    Raises:
        ValueError, FileNotFoundError: a rule refuses, no entry is left, or the photo folder is
            missing.
    """
    opens_photos = image_folder is not None and rules.missing_photos != "keep"
    folder = None if image_folder is None or not opens_photos else PhotoFolder(folder=image_folder)
    entries, known_files = _below(entries, known_files, folder)
    check_unique(entries)
    left_out = list(dropped)
    captioned = _with_captions(entries, rules, left_out)
    if folder is None:
        root = Path(image_folder or "")
        paths = {entry.image_id: root / entry.file_name for entry in captioned}
    else:
        paths = _photo_paths(captioned, folder, rules, left_out)
        left_out += [Dropped(item=file, rule=UNNAMED) for file in folder.unclaimed(known_files)]
    samples: list[Sample] = []
    for entry in captioned:
        if entry.image_id in paths:
            first, path = len(samples), paths[entry.image_id]
            samples += _samples(first, entry, path, opens_photos, rules, left_out)
    if not samples:
        raise SettingError(
            source,
            f"no samples for {name} ({len(entries)} images, {len(left_out)} items dropped"
            f"{_first(left_out, image_folder)})",
            "check the split and the photo folder",
        )
    return build_roster(name, samples, left_out)


def _below(
    entries: Sequence[ImageEntry], known_files: Iterable[str], folder: PhotoFolder | None
) -> tuple[Sequence[ImageEntry], Iterable[str]]:
    """Replace absolute photo paths in entries by paths below the photo folder."""
    given = [entry.file_name for entry in entries]
    names = [name for name in given if name.startswith("/")]
    new = {name: name[1:] for name in names} if folder is None else folder.below_or_cut(given)
    if not new:
        return entries, known_files
    if folder and len(names) == len(entries) and not any(map(folder.find, new.values())):
        lie = (
            os.path.commonpath(list(map(os.path.dirname, names))) if Path(names[0]).exists() else ""
        )
        raise SettingError(
            entries[0].where,
            f"photos have absolute paths such as {names[0]!r}, and none of {len(names)} is "
            f"in {folder.folder}",
            "name the folder that holds them by ",
            Setting("image_folder", lie),
        )
    renamed = [
        entry._replace(
            file_name=GivenName.of(
                new.get(entry.file_name, entry.file_name), given_name(entry.file_name)
            ),
            image_id=new.get(entry.image_id, entry.image_id),
        )
        for entry in entries
    ]
    return renamed, [new.get(name, name) for name in known_files]


def _with_captions(
    entries: Sequence[ImageEntry], rules: Rules, dropped: list[Dropped]
) -> list[ImageEntry]:
    uncaptioned = [entry for entry in entries if not entry.captions]
    if uncaptioned and rules.missing_captions == "error":
        raise SettingError(
            uncaptioned[0].where,
            f"image {uncaptioned[0].image_id!r} has no caption{_and_more(uncaptioned)}",
            "add captions, remove the image, or set ",
            Setting("missing_captions", "drop"),
        )
    dropped += [Dropped(item=entry.file_name, rule=NO_CAPTION) for entry in uncaptioned]
    return [entry for entry in entries if entry.captions]


def _photo_paths(
    entries: Sequence[ImageEntry], folder: PhotoFolder, rules: Rules, dropped: list[Dropped]
) -> dict[str, Path]:
    paths = {entry.image_id: folder.find(entry.file_name) for entry in entries}
    _check_apart(entries, paths)
    missing = [entry for entry in entries if paths[entry.image_id] is None]
    if missing and rules.missing_photos == "error":
        first = missing[0]
        raise SettingError(
            first.where,
            f"no photo {first.file_name!r} in {folder.folder}{_and_more(missing)}"
            f"{_alike(first.file_name, folder)}",
            "add the photos, or set ",
            Setting("missing_photos", "drop"),
            " to leave these images out (keep, where features were imported)",
        )
    dropped += [Dropped(item=entry.file_name, rule=NO_PHOTO) for entry in missing]
    return {image_id: path for image_id, path in paths.items() if path is not None}


def _first(left_out: Sequence[Dropped], image_folder: str | Path | None) -> str:
    if not left_out:
        return ""
    first = next((one for one in left_out if one.rule == NO_PHOTO), left_out[0])
    hint = ""
    if image_folder is not None and first.rule == NO_PHOTO:
        hint = _alike(first.item, PhotoFolder(folder=image_folder))
    return f", the first: {first.item!r:.80}: {first.rule}{hint}"


def _alike(name: str, folder: PhotoFolder) -> str:
    found = folder.alike(name)
    shown = f"{found[0]!r}" if len(found) == 1 else f"{found}"
    return f", but {shown}: write names as the files have them" if found else ""


def _check_apart(entries: Sequence[ImageEntry], paths: Mapping[str, Path | None]) -> None:
    """Raise an error if two entries name the same photo."""
    known: dict[Path, ImageEntry] = {}
    for entry in entries:
        path = paths[entry.image_id]
        first = entry if path is None else known.setdefault(path, entry)
        if first is not entry:
            raise SettingError(
                entry.where,
                f"{given_name(entry.file_name)!r} is the photo {path}, and so is "
                f"{given_name(first.file_name)!r} at {first.where}",
                "give it one name",
            )


def _samples(
    first: int,
    entry: ImageEntry,
    path: Path,
    has_photo: bool,
    rules: Rules,
    dropped: list[Dropped],
) -> list[Sample]:
    """Return an image's samples, with rows numbered from ``first``."""
    size = entry.size
    if entry.boxes and has_photo:
        try:
            size = photo_size(path, entry.size)
        except ValueError as error:
            dropped.append(Dropped(item=entry.file_name, rule=f"{UNREADABLE}: {error}"))
            return []
    regions, position = _regions(entry, size, rules, dropped)
    return [
        quick_sample(
            row=row,
            sample_id=f"{entry.image_id}#{caption.key}",
            image_id=str(entry.image_id),
            image_path=path,
            caption=caption.text,
            regions=regions,
            phrases=_grounded(caption.phrases, position) if caption.phrases else (),
            size=size if rules.missing_photos == "keep" else None,
            file_name=given_name(entry.file_name),
        )
        for row, caption in enumerate(entry.captions, start=first)
    ]


def _regions(
    entry: ImageEntry, size: tuple[int, int] | None, rules: Rules, dropped: list[Dropped]
) -> tuple[tuple[Region, ...], dict[int, int]]:
    """Return regions in the photo's pixels, and the new position of each kept box."""
    regions: list[Region] = []
    position: dict[int, int] = {}
    annotated = entry.size or size
    for number, raw in enumerate(entry.boxes):
        try:
            box = checked_box(raw.box, annotated, raw.where)
        except ValueError:
            if rules.bad_boxes == "error":
                raise
            dropped.append(Dropped(item=raw.where, rule=BAD_BOX))
            continue
        if annotated is not None and size is not None:
            box = scaled_box(box, annotated, size)
        position[number] = len(regions)
        regions.append(Region(box=box, label=raw.label, score=raw.score))
    return tuple(regions), position


def _grounded(phrases: Sequence[Phrase], position: Mapping[int, int]) -> tuple[Phrase, ...]:
    if not phrases:
        return ()
    return tuple(
        Phrase(
            start=phrase.start,
            text=phrase.text,
            chain_id=phrase.chain_id,
            kinds=phrase.kinds,
            regions=tuple(position[box] for box in phrase.regions if box in position),
        )
        for phrase in phrases
    )


def _and_more(items: Sequence[object]) -> str:
    return f" (and {len(items) - 1} more)" if len(items) > 1 else ""
