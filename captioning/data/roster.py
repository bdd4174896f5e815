"""Samples of the annotations (`Roster`, immutable) and their curated state (`CurationView`)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice, pairwise
from json.encoder import encode_basestring_ascii as _quoted
from operator import attrgetter
from pathlib import Path
from typing import get_args

from captioning.runtime.files import check_inside
from captioning.types import Edit, EditAction, MaskedSpan, Sample

ACTIONS = get_args(EditAction)
MAX_BUCKETS = 8
AT_ONCE = 10_000  # captions of a block of the fingerprint
_SPAN = re.compile(r"(\d{1,9})-(\d{1,9})(?::(\d{1,3}(?:\.\d{1,9})?(?:e-\d{1,3})?))?", re.ASCII)
PLANTED = "noise:"  # the origin of a sample with a planted fault is this and the kind of fault
# ... and, of a fault of a word, its place in the caption, the wrong and the right word
_PLANTED = re.compile(
    r"noise:(?P<kind>.+?)(?::(?P<start>[0-9]{1,9}):(?P<wrong>[^>]+)>(?P<right>.*))?", re.DOTALL
)
_ROW, _ID, _IMAGE, _CAPTION = map(attrgetter, ("row", "sample_id", "image_id", "caption"))


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """An item of an annotation file that the roster leaves out, with the reason."""

    item: str
    rule: str


@dataclass(frozen=True, kw_only=True)
class PlantedWord:
    """The position of a planted fault in its caption.

    Attributes:
        start: index of the first wrong character in the faulty caption.
        wrong: the wrong text.
        right: the text before the fault was planted; empty where text was added.
    """

    start: int
    wrong: str
    right: str


def planted_origin(kind: str, word: PlantedWord | None = None) -> str:
    """Return the origin of a sample with an injected fault, as ``"noise:color:2:blue>red"``."""
    place = "" if word is None else f":{word.start}:{word.wrong}>{word.right}"
    return f"{PLANTED}{kind}{place}"


@dataclass(frozen=True, kw_only=True)
class Roster:
    """All samples of one split, read once.

    Attributes:
        name: data set and split, such as ``"flickr8k/train"``.
        samples: one per caption; ``samples[i].row == i``; an image's captions need not be
            adjacent.
        dropped: omissions with their rules; shown to the user and written to the run folder.
        photo_root: the folder that the annotations' names of photos are relative to; None: unknown.

    Raises:
        ValueError: no samples, rows out of order, a repeated ``sample_id``, or a blank caption.
    """

    name: str
    samples: tuple[Sample, ...]
    dropped: tuple[Dropped, ...] = ()
    photo_root: Path | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.samples:
            raise ValueError(f"{self.name}: no samples; check the split name and the annotations")
        if len(self.by_id) != len(self.samples):
            ids: set[str] = set()
            duplicate = next(s for s in self.samples if s.sample_id in ids or ids.add(s.sample_id))
            raise ValueError(
                f"{self.name}: sample_id must be unique: {duplicate.sample_id!r} occurs twice; "
                "remove one of the two entries"
            )
        for row, number in enumerate(map(_ROW, self.samples)):
            if number != row:
                raise ValueError(f"{self.name}: row must be the position: {number} at {row}")
        if not all(map(str.strip, map(_CAPTION, self.samples))):
            blank = next(sample for sample in self.samples if not sample.caption.strip())
            raise ValueError(f"{self.name}: caption of {blank.sample_id!r} is empty")

    def __len__(self) -> int:
        return len(self.samples)

    @cached_property
    def by_id(self) -> dict[str, Sample]:
        """Samples by ``sample_id``."""
        return dict(zip(map(_ID, self.samples), self.samples, strict=True))

    @cached_property
    def rows_by_image(self) -> dict[str, tuple[int, ...]]:
        """Rows of each image's captions, images in order of first appearance."""
        rows: dict[str, list[int]] = {}
        for sample in self.samples:
            rows.setdefault(sample.image_id, []).append(sample.row)
        return {image_id: tuple(image_rows) for image_id, image_rows in rows.items()}

    @cached_property
    def planted(self) -> dict[str, str]:
        """Kind of fault by ``sample_id``, for samples with an injected fault."""
        return {sample_id: match["kind"] for sample_id, match in self._planted.items()}

    @cached_property
    def planted_words(self) -> dict[str, PlantedWord]:
        """Position, wrong word and right word by ``sample_id``, for injected word faults."""
        return {
            sample_id: PlantedWord(start=int(m["start"]), wrong=m["wrong"], right=m["right"])
            for sample_id, m in self._planted.items()
            if m["start"] is not None
        }

    @cached_property
    def _planted(self) -> dict[str, re.Match[str]]:
        matches = ((s.sample_id, _PLANTED.fullmatch(s.origin)) for s in self.samples)
        return {sample_id: match for sample_id, match in matches if match is not None}

    def references(self) -> dict[str, list[str]]:
        """Return the captions by image, as metrics expect them."""
        return {
            image_id: [self.samples[row].caption for row in rows]
            for image_id, rows in self.rows_by_image.items()
        }

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of ids and captions in order (16 hex digits); journals name rosters by it."""
        digest = hashlib.sha256()
        # JSON of the three texts, without the detour through `json.dumps`
        columns = (map(_quoted, map(get, self.samples)) for get in (_ID, _IMAGE, _CAPTION))
        lines = (f"[{', '.join(texts)}]\n" for texts in zip(*columns, strict=True))
        while block := "".join(islice(lines, AT_ONCE)):
            digest.update(block.encode())
        return digest.hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class CurationView:
    """A roster with the edits made so far; a pure function derives the epoch's samples.

    Attributes:
        roster: the annotations.
        journal: the edits in order.
        image_root: folder that relative paths of replaced images start from, usually the run's.
        confined: for foreign edits, further folders that pictures may lie in, beside ``image_root``
            and the folders of the roster's photos; None: anywhere.
    """

    roster: Roster
    journal: tuple[Edit, ...] = field(default=())
    image_root: Path = Path()
    confined: tuple[Path, ...] | None = field(default=None, compare=False)

    def apply(self, edits: Iterable[Edit]) -> CurationView:
        """Return the view after further edits.

        Raises:
            ValueError: an unknown or removed ``sample_id``, an unknown action, a missing value,
                masked spans that are none or not in the caption, or edits that would leave no
                sample.
        """
        added = tuple(edits)
        view = replace(self, journal=(*self.journal, *added))
        # the new view starts from this view's slots instead of replaying all edits, so that an
        # epoch's end costs the epoch's own edits alone
        slots = self._slots.copy()
        self._amend(slots, added, first=len(self.journal) + 1)
        vars(view)["_slots"] = slots
        view.samples()
        return view

    @cached_property
    def _slots(self) -> list[Sample | None]:
        """Current sample of each roster row, None if removed."""
        slots: list[Sample | None] = list(self.roster.samples)
        self._amend(slots, self.journal, first=1)
        return slots

    def _amend(self, slots: list[Sample | None], edits: Sequence[Edit], *, first: int) -> None:
        """Apply edits to ``slots`` in place; error messages number them from ``first``."""
        for number, edit in enumerate(edits, start=first):
            row = _row_of(self.roster, edit, number)
            current = slots[row]
            if current is None:
                raise ValueError(
                    f"edit {number}: {edit.sample_id!r} is edited after it was removed; "
                    "was the journal applied twice?"
                )
            try:
                picture = self.picture(edit) if edit.action == "replace_image" else None
                slots[row] = _amended(current, edit, picture)
            except ValueError as error:
                raise ValueError(f"edit {number} (line {number + 1}): {error}") from error

    def picture(self, edit: Edit) -> Path:
        """Return the picture that an edit puts in place of another.

        Raises:
            ValueError: the edits are confined, and it lies elsewhere.
        """
        path = self.image_root / (edit.value or "")
        if self.confined is None:
            return path
        remedy = (
            "take it out of the journal and ask who gave it to you, or, where the run is your own, "
            "let CAPTIONING_DATA name the picture's folder"
        )
        folders = chain([self.image_root], self._photo_folders, self.confined)
        try:
            check_inside(path, folders, remedy=remedy)
        except ValueError as error:
            raise ValueError(f"picture of {edit.sample_id!r}: {error}") from error
        return path

    @cached_property
    def _photo_folders(self) -> tuple[Path, ...]:
        folders = dict.fromkeys(sample.image_path.parent for sample in self.roster.samples)
        return tuple(folder for folder in folders if folder != Path())  # names without a folder

    def photos(self, sample_id: str) -> tuple[Path, ...]:
        """All pictures that a sample has or had, the roster's first."""
        original = self.roster.by_id[sample_id].image_path
        return (original, *self._pictures.get(sample_id, ()))

    @cached_property
    def given(self) -> tuple[Path, ...]:
        """All pictures that edits gave a sample, including replaced ones."""
        return tuple(path for paths in self._pictures.values() for path in paths)

    @cached_property
    def _pictures(self) -> dict[str, list[Path]]:
        """Replaced pictures by sample, in order."""
        paths: dict[str, list[Path]] = {}
        for edit in self.journal:
            if edit.action == "replace_image":
                paths.setdefault(edit.sample_id, []).append(self.picture(edit))
        return paths

    @cached_property
    def _samples(self) -> tuple[Sample, ...]:
        remaining = tuple(sample for sample in self._slots if sample is not None)
        if not remaining:
            raise ValueError(
                f"{self.roster.name}: the edits leave no sample; lower the ratio or stop earlier"
            )
        return remaining

    def samples(self) -> tuple[Sample, ...]:
        """Samples that are not removed, in roster order; ``row`` stays the roster's."""
        return self._samples

    def pool(self, image_id: str) -> list[Sample]:
        """Return human captions of an image that no edit has rejected, in roster order.

        A caption leaves the pool for good when the sample that holds it is removed or has its
        caption replaced (paper: data curation, section 3.2).
        """
        rows = self.roster.rows_by_image[image_id]
        condemned = self._condemned
        return [self.roster.samples[row] for row in rows if row not in condemned]

    def held_id(self, sample_id: str) -> str:
        """Return the id of the sample whose caption a sample has now: its own, or a sibling's."""
        return self._held.get(sample_id, sample_id)

    @property
    def _condemned(self) -> frozenset[int]:
        """Rows of the roster whose original caption was rejected, wherever it was used."""
        return self._captions[0]

    @property
    def _held(self) -> dict[str, str]:
        """Id of the caption's source, for samples with a sibling's caption."""
        return self._captions[1]

    @cached_property
    def _captions(self) -> tuple[frozenset[int], dict[str, str]]:
        by_id = self.roster.by_id
        held: dict[str, str] = {}
        condemned: set[int] = set()
        for edit in self.journal:
            if edit.action in ("remove", "replace_caption"):
                condemned.add(by_id[held.get(edit.sample_id, edit.sample_id)].row)
            if edit.action == "replace_caption" and edit.origin.startswith("sibling:"):
                source = edit.origin.removeprefix("sibling:")
                if source in by_id:
                    held[edit.sample_id] = source
        return frozenset(condemned), held


def _row_of(roster: Roster, edit: Edit, number: int) -> int:
    sample = roster.by_id.get(edit.sample_id)
    if sample is None:
        raise ValueError(
            f"edit {number}: unknown sample_id {edit.sample_id!r} in {roster.name}; "
            "the journal belongs to other annotations"
        )
    if edit.action not in ACTIONS:
        raise ValueError(f"edit {number}: action must be one of {ACTIONS}: got {edit.action!r}")
    if edit.action != "remove" and not (edit.value or "").strip():
        raise ValueError(f"edit {number}: {edit.action} of {edit.sample_id!r} needs a value")
    if edit.action == "down_weight" and not _is_weight(edit.value or ""):
        raise ValueError(
            f"edit {number}: the weight of {edit.sample_id!r} must be a number in [0, 1]: "
            f"got {edit.value!r}"
        )
    if edit.action == "set_bucket" and (edit.value or "") not in map(str, range(MAX_BUCKETS)):
        raise ValueError(f"edit {number}: a bucket is 0 to {MAX_BUCKETS - 1}: got {edit.value!r}")
    return sample.row


def _is_weight(value: str) -> bool:
    try:
        return 0 <= float(value) <= 1
    except ValueError:
        return False


def _amended(sample: Sample, edit: Edit, picture: Path | None) -> Sample | None:
    if edit.action == "remove":
        return None
    value = edit.value or ""
    if edit.action == "replace_caption":
        changed = {"caption": value, "phrases": (), "masks": (), "bucket": 0}
        return replace(sample, **changed, origin=edit.origin)
    if edit.action == "down_weight":
        return replace(sample, weight=float(value))
    if edit.action == "set_bucket":
        return replace(sample, bucket=int(value))
    if edit.action == "mask_words":
        return replace(sample, masks=_checked_masks(value, sample))
    if picture is None:
        raise ValueError(f"{edit.action} of {edit.sample_id!r} has no picture")
    return replace(sample, image_path=picture, regions=(), size=None, origin=edit.origin)


def parse_masks(text: str) -> tuple[MaskedSpan, ...]:
    """Parse the spans of an edit's value, such as ``"12-17,30-34:0.2"``.

    Spans are separated by commas and are in order, without overlap. ``12-17`` is
    ``caption[12:17]``; the number after the colon is the remaining weight, by default 0.

    Raises:
        ValueError: another form, a weight outside of [0, 1), or spans that overlap.
    """
    masks = []
    for part in text.split(","):
        match = _SPAN.fullmatch(part.strip())
        if match is None:
            raise ValueError(
                f"masked spans are written START-STOP or START-STOP:WEIGHT, with commas between "
                f"them, such as 12-17,30-34:0.2: got {text!r}"
            )
        start, stop, weight = match.groups(default="0")
        masks.append(MaskedSpan(start=int(start), stop=int(stop), weight=float(weight)))
    for earlier, later in pairwise(masks):
        if later.start < earlier.stop:
            raise ValueError(
                f"masked spans must be in order and not overlap: got {masks_text((earlier, later))}"
            )
    return tuple(masks)


def masks_text(masks: Iterable[MaskedSpan]) -> str:
    """Return spans as text that `parse_masks` reads."""
    return ",".join(
        f"{mask.start}-{mask.stop}" + (f":{mask.weight:.6g}" if mask.weight else "")
        for mask in masks
    )


def _checked_masks(text: str, sample: Sample) -> tuple[MaskedSpan, ...]:
    """Return the spans of a sample's edit, after a check that they lie in its caption."""
    try:
        masks = parse_masks(text)
    except ValueError as error:
        raise ValueError(f"masked words of {sample.sample_id!r}: {error}") from error
    if masks[-1].stop > len(sample.caption):
        raise ValueError(
            f"masked words of {sample.sample_id!r}: {masks_text(masks[-1:])} ends outside of the "
            f"caption, which has {len(sample.caption)} characters: {sample.caption!r}; was the "
            "edit made for another caption?"
        )
    return masks


def build_roster(name: str, samples: Sequence[Sample], dropped: Sequence[Dropped] = ()) -> Roster:
    """Build a roster of ``samples`` with rows numbered from 0."""
    numbered = tuple(
        sample if sample.row == row else replace(sample, row=row)  # which takes its time
        for row, sample in enumerate(samples)
    )
    return Roster(name=name, samples=numbered, dropped=tuple(dropped))
