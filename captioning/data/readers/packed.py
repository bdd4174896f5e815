"""Build a `Roster` from photos packed in large files; shared by webdataset and Arrow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Lt

from captioning.config.setting_error import Setting, SettingError
from captioning.data.readers.caption_columns import listed
from captioning.data.readers.entries import (
    LEAVE_OUT,
    NO_PHOTO,
    Policy,
    Rules,
    normalised,
    sample_keys,
)
from captioning.data.roster import Dropped, Roster
from captioning.types import Sample

Part = Literal["train", "val", "test", "all"]
HeldOut = Annotated[float, Ge(0), Lt(0.5)]


@dataclass(frozen=True, slots=True)
class PackedPhoto:
    """A photo in a large file.

    Attributes:
        image_id: unique id.
        path: path of the photo, see `captioning.vision.photo_places`; None: it has none.
        captions: the good ones, normalised.
        problem: why there are none.
        where: file and place, for messages.
        bad: why further captions are none, for each.
        same: equal for rows of one photo, which are joined; empty: it stands alone.
        draw: decides the part it belongs to; empty: its image id does.
        sample_ids: sample ids of the captions, as the file has them; empty: it has none.
        said: the image id that the file says; empty: none.
        name: name of the photo, as the file has it; empty: it says none.
        split: split named by the file; empty: none.
    """

    image_id: str
    path: str | Path | None
    captions: tuple[str, ...]
    problem: str
    where: str
    bad: tuple[str, ...] = ()
    same: str = ""
    draw: str = ""
    sample_ids: tuple[str, ...] = ()
    said: str = ""
    name: str = ""
    split: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """One part of a set of photos, selected by a hash of ids or keys.

    Attributes:
        part: ``"val"`` and ``"test"`` get ``held_out`` of the photos each, ``"train"`` the rest;
            ``"all"`` gets all.
        held_out: 0: every part gets all photos.

    Raises:
        ValueError: another part, or a share that leaves nothing to train on.
    """

    part: Part = "all"
    held_out: float = 0.0

    def __post_init__(self) -> None:
        if self.part not in ("train", "val", "test", "all"):
            raise ValueError(f"part must be train, val, test or all: got {self.part!r}")
        if not 0 <= self.held_out < 0.5:
            raise ValueError(f"held_out must be at least 0 and below 0.5: got {self.held_out}")

    def has(self, draw: str) -> bool:
        """Whether the photo of an id or a key belongs to this part."""
        if self.part == "all" or self.held_out == 0:
            return True
        digest = hashlib.blake2b(draw.encode(), digest_size=8).digest()
        share = int.from_bytes(digest, "big") / 2**64
        if share < self.held_out:
            return self.part == "val"
        return self.part == ("test" if share < 2 * self.held_out else "train")


def packed_roster(
    *,
    name: str,
    source: str,
    photos: Iterable[PackedPhoto],
    division: Division,
    rules: Rules,
    bad_captions: Policy | None = None,
    dropped: Sequence[Dropped] = (),
) -> Roster:
    """Build the roster of a part.

    Args:
        name, source: name of the roster, and the files for messages.
        photos: photos of all parts.
        division: the part of them to take.
        rules: rules for photos without captions and captions without photos.
        bad_captions: rule for single captions; None: a photo with a bad one counts as without
            captions.
        dropped: the reader's own omissions.

    Raises:
        ValueError: by the rules, or nothing is left.
    """
    left_out = list(dropped)
    samples: list[Sample] = []
    for photo in photos:
        if division.has(photo.draw or photo.image_id):
            photo = _judged(photo, bad_captions, left_out)
            problem = _problem(photo, rules)
            if problem:
                left_out.append(Dropped(item=photo.where, rule=problem))
            else:
                samples += _samples(photo, len(samples))
    if not samples:
        first = f", the first: {left_out[0].item}: {left_out[0].rule}" if left_out else ""
        raise SettingError(
            source,
            f"no samples for {name} ({len(left_out)} items left out{first})",
            "check the files, the captions and held_out=",
        )
    return Roster(name=name, samples=tuple(samples), dropped=tuple(left_out))


def good_and_bad(values: Sequence[Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Separate normalised captions from invalid values, with the reason of each."""
    good: list[str] = []
    bad: list[str] = []
    for value in values:
        if not isinstance(value, str):
            bad.append("caption is not a text or a list of texts")
            continue
        try:
            good += [normalised(text, "caption") for text in listed(value, "caption")]
        except SettingError as error:
            bad.append(error.finding)
    return tuple(good), tuple(bad)


def _judged(photo: PackedPhoto, bad_captions: Policy | None, dropped: list[Dropped]) -> PackedPhoto:
    """Return a photo with its valid captions."""
    if not photo.bad:
        return photo
    if bad_captions is None:
        return replace(photo, captions=(), problem=photo.bad[0])
    if bad_captions == "error":
        raise SettingError(
            photo.where, photo.bad[0], "correct it, or leave such captions out by ", LEAVE_OUT
        )
    dropped += [Dropped(item=photo.where, rule=rule) for rule in photo.bad]
    return photo


def _problem(photo: PackedPhoto, rules: Rules) -> str:
    """Return the reason why a photo is left out; empty if it is used."""
    if not photo.captions:
        if rules.missing_captions == "error":
            raise SettingError(
                photo.where,
                photo.problem,
                "correct it, or leave such photos out by ",
                Setting("missing_captions", "drop"),
            )
        return photo.problem
    if photo.path is None and rules.missing_photos != "keep":
        named = f" {photo.name!r}" if photo.name else ""
        if rules.missing_photos == "error":
            raise SettingError(
                photo.where,
                f"has captions and no photo{named}",
                "add it, or leave such captions out by ",
                Setting("missing_photos", "drop"),
            )
        return NO_PHOTO
    return ""


def _samples(photo: PackedPhoto, row: int) -> Iterator[Sample]:
    """Return the samples of a photo, with rows numbered from the given row."""
    path = Path(photo.where if photo.path is None else photo.path)
    keys = sample_keys(photo.image_id, photo.sample_ids, len(photo.captions))
    for number, (key, caption) in enumerate(zip(keys, photo.captions, strict=True)):
        yield Sample(
            row=row + number,
            sample_id=f"{photo.image_id}#{key}",
            image_id=photo.image_id,
            image_path=path,
            caption=caption,
            file_name=photo.name,
        )
