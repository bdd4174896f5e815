"""Record of a run's data (ids, captions, splits, photos), which a resumed run compares.

A run folder keeps ``data.json``, with the number of captions and photos and a fingerprint of each
split, and ``data_rows.jsonl.gz``, a line a caption: split, id, image, content of the photo, and a
hash of the caption. The second is read if a fingerprint differs, to list the changes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from captioning.data.roster import Roster
from captioning.runtime.files import read_json, write_atomically, write_json
from captioning.types import Sample
from captioning.vision.photo_keys import PhotoKeys
from captioning.vision.photo_places import photo_exists

FILE_NAME = "data.json"
ROWS_NAME = "data_rows.jsonl.gz"
KEYS_FOLDER = "photo_keys"  # of the cache
SHOWN = 3  # names of what has changed
log = logging.getLogger(__name__)

Keys = Mapping[Path, str]
"""Content of photos by path, see `photo_keys`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRecord:
    """A split as it was read at the start of the run.

    Attributes:
        roster: its name.
        captions, photos: how many.
        text: `Roster.fingerprint`.
        pictures: fingerprint of the photos' contents in the order of captions; None: not all of
            them were read.
    """

    roster: str
    captions: int
    photos: int
    text: str
    pictures: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A caption: its image, hash of the photo's content (or None), and hash of its text."""

    image_id: str
    photo: str | None
    caption: str


_Rows = Mapping[tuple[str, str], _Row]  # by split and sample id


def photo_keys(rosters: Iterable[Roster], cache: str | Path) -> dict[Path, str]:
    """Return hashes of photos' contents by path, 24 hex digits; missing photos are left out.

    Args:
        rosters: whose photos are read; a photo that has not changed since is not read again.
        cache: the folder ``paths.cache``.
    """
    paths = {sample.image_path for roster in rosters for sample in roster.samples}
    there = [path for path in sorted(paths) if path.name and photo_exists(path)]
    return PhotoKeys(Path(cache) / KEYS_FOLDER)(there)


def write_record(
    folder: Path, rosters: Mapping[str, Roster], keys: Keys, *, accepted: Sequence[Any] = ()
) -> None:
    """Record the data with which a run begins.

    Args:
        folder: the run's folder.
        rosters: rosters by split.
        keys: keys of their photos.
        accepted: changes that were accepted before, see `check_record`.
    """
    splits = {split: asdict(_split(roster, keys)) for split, roster in rosters.items()}
    rows = (
        json.dumps([split, s.sample_id, s.image_id, keys.get(s.image_path), _hash(s.caption)])
        for split, roster in rosters.items()
        for s in roster.samples
    )
    write_atomically(folder / ROWS_NAME, lambda part: _write_rows(part, rows))
    write_json(folder / FILE_NAME, {"splits": splits, "accepted": list(accepted)})


def _write_rows(part: Path, rows: Iterable[str]) -> None:
    # Without the temporary name and the time, so that the same data give the same bytes.
    with (
        part.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as file,
    ):
        for row in rows:
            file.write(f"{row}\n".encode())


def check_record(
    folder: Path, rosters: Mapping[str, Roster], keys: Keys, *, accept: bool | None = None
) -> bool:
    """Raise an error if data differ from the data with which a run began.

    Args:
        folder: the run's folder; one without a record, of an older version, is not compared.
        rosters: some of its splits, as they are read now; others are not compared.
        keys: keys of their photos; those without are not compared.
        accept: take the changes, which are logged; None: the caller has no setting for that.

    Returns:
        Whether there is a record and the data differ from it.

    Raises:
        ValueError: captions, photos or splits differ and are not accepted; names them.
    """
    if not (folder / FILE_NAME).is_file():
        return False
    saved = _read_splits(folder)
    rosters = {split: roster for split, roster in rosters.items() if split in saved}
    if all(_same(saved[split], _split(roster, keys)) for split, roster in rosters.items()):
        return False
    changes = "; ".join(_changes(_read_rows(folder), rosters, keys)) or "captions are reordered"
    if not accept:
        setting = "" if accept is None else "; to accept the changes set data.accept_changes=true"
        raise ValueError(
            f"{folder}: its data have changed since it began: {changes}. Restore the data, or "
            f"train in another folder (run_name=){setting}"
        )
    log.warning(f"{folder}: changed data are accepted: {changes}")
    return True


def accept_changes(folder: Path, rosters: Mapping[str, Roster], keys: Keys) -> None:
    """Record accepted changes with the time, and the present data."""
    changes = _changes(_read_rows(folder), rosters, keys)
    accepted = read_json(folder / FILE_NAME, dict).get("accepted", [])
    entry = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "changes": changes}
    write_record(folder, rosters, keys, accepted=[*accepted, entry])


def photos_of(folder: Path, split: str = "train") -> dict[str, str]:
    """Return image ids by content of the photos in a run's split; empty if unknown."""
    if not (folder / FILE_NAME).is_file():
        return {}
    rows = _read_rows(folder).items()
    return {row.photo: row.image_id for (own, _), row in rows if own == split and row.photo}


def copies(
    first: Mapping[str, str], roster: Roster, keys: Keys, *, but: Collection[str] = ()
) -> dict[str, str]:
    """Return photos of a roster that equal other photos in content.

    Args:
        first: image ids by content of the others.
        roster: whose photos are looked for.
        keys: keys of its photos.
        but: image ids that are passed over.

    Returns:
        Image id of the other by the image id of the roster's.
    """
    found = {}
    for image_id, rows in roster.rows_by_image.items():
        key = keys.get(roster.samples[rows[0]].image_path)
        if key is not None and key in first and image_id not in but:
            found[image_id] = first[key]
    return found


def shown(names: Iterable[str]) -> str:
    """Return the first few names, for messages."""
    names = list(names)
    more = ", ..." if len(names) > SHOWN else ""
    return ", ".join(map(repr, names[:SHOWN])) + more


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _split(roster: Roster, keys: Keys) -> SplitRecord:
    photos = [keys.get(sample.image_path) for sample in roster.samples]
    known = [photo for photo in photos if photo is not None]
    return SplitRecord(
        roster=roster.name,
        captions=len(roster),
        photos=len(roster.rows_by_image),
        text=roster.fingerprint,
        pictures=_hash("\n".join(known)) if len(known) == len(photos) else None,
    )


def _same(saved: SplitRecord, now: SplitRecord) -> bool:
    pictures = saved.pictures == now.pictures or None in (saved.pictures, now.pictures)
    return saved.text == now.text and pictures


def _read_splits(folder: Path) -> dict[str, SplitRecord]:
    path = folder / FILE_NAME
    try:
        splits = read_json(path, dict)["splits"]
        return {split: SplitRecord(**values) for split, values in splits.items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise _damaged(path) from error


def _read_rows(folder: Path) -> _Rows:
    path = folder / ROWS_NAME
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            rows = dict(map(_row, file))
    except (OSError, EOFError, ValueError, TypeError) as error:
        raise _damaged(path) from error
    if len(rows) != sum(split.captions for split in _read_splits(folder).values()):
        raise _damaged(path)
    return rows


def _row(line: str) -> tuple[tuple[str, str], _Row]:
    split, sample_id, image_id, photo, caption = json.loads(line)
    return (split, sample_id), _Row(image_id=image_id, photo=photo, caption=caption)


def _damaged(path: Path) -> ValueError:
    return ValueError(
        f"{path} is missing or damaged, so changes of the run's data cannot be detected: "
        f"restore it, or remove it and {path.with_name(FILE_NAME)} to resume without a comparison"
    )


def _changes(saved: _Rows, rosters: Mapping[str, Roster], keys: Keys) -> list[str]:
    """Describe the differences: number and first examples of each kind."""
    now = {(split, s.sample_id): s for split, r in rosters.items() for s in r.samples}
    lost = {place: row for place, row in saved.items() if place[0] in rosters and place not in now}
    added = [place for place in now if place not in saved]
    both = [(place, saved[place], sample) for place, sample in now.items() if place in saved]
    captions = [place[1] for place, row, s in both if row.caption != _hash(s.caption)]
    images = [place[1] for place, row, s in both if row.image_id != s.image_id]
    moved = list(_moved(lost, added, saved))
    gone = {place for pair in moved for place in pair}
    return [
        *_counted("captions have other words", captions),
        *_counted("captions are of other images", images),
        *_counted("photos have other contents", _other_photos(both, keys)),
        *_counted("captions are new", [place[1] for place in added if place not in gone]),
        *_counted("captions are gone", [place[1] for place in lost if place not in gone]),
        *_splits_of(moved),
    ]


def _counted(what: str, names: Iterable[str]) -> list[str]:
    names = list(dict.fromkeys(names))
    return [f"{len(names)} {what} ({shown(names)})"] if names else []


def _other_photos(
    both: Iterable[tuple[tuple[str, str], _Row, Sample]], keys: Keys
) -> Iterator[str]:
    for _, row, sample in both:
        key = keys.get(sample.image_path)
        if row.photo and key and row.photo != key and row.image_id == sample.image_id:
            yield sample.image_id


def _moved(
    lost: Collection[tuple[str, str]], added: Iterable[tuple[str, str]], saved: _Rows
) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Return old and new splits of captions that have moved to another split."""
    before = {sample_id: (split, sample_id) for split, sample_id in (*saved, *lost)}
    for place in added:
        if place[1] in before:
            yield before[place[1]], place


def _splits_of(moved: Sequence[tuple[tuple[str, str], tuple[str, str]]]) -> list[str]:
    ways = dict.fromkeys((old[0], new[0]) for old, new in moved)
    return [
        text
        for start, end in ways
        for text in _counted(
            f"captions went from {start} to {end}",
            [new[1] for old, new in moved if (old[0], new[0]) == (start, end)],
        )
    ]
