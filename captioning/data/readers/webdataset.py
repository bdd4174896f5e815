"""Webdataset shards: tar files in which ``KEY.jpg`` stands beside ``KEY.txt`` or ``KEY.json``."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from rich.progress import track

from captioning.config.loadable import loadable
from captioning.config.ranges import Name
from captioning.config.setting_error import Setting, SettingError
from captioning.data.readers.collector import collector_paused
from captioning.data.readers.entries import PhotoPolicy, Policy, Rules
from captioning.data.readers.packed import (
    Division,
    HeldOut,
    PackedPhoto,
    Part,
    packed_roster,
)
from captioning.data.readers.read_once import read_once
from captioning.data.readers.shard_names import shard_files
from captioning.data.readers.split_words import COLUMN
from captioning.data.readers.tar_listing import TWICE, Listing, list_shard
from captioning.data.roster import Dropped, Roster
from captioning.vision.photo_places import member_path

log = logging.getLogger(__name__)

_NUM_THREADS = 8  # that read shards; most of the time is spent on the disk


@loadable
@collector_paused()
def read_webdataset(
    *,
    name: str,
    folder: str | Path,
    shards: str | list[str] = "*.tar",
    part: Part = "all",
    held_out: HeldOut = 0.0,
    caption_key: Name | None = None,
    cache_folder: str | Path | None = None,
    own_ids: bool = False,
    missing_photos: PhotoPolicy = "error",
    missing_captions: Policy = "error",
    bad_captions: Policy | None = None,
    duplicate_keys: Policy = "error",
    damaged_shards: Policy = "error",
) -> Roster:
    """The photos and captions of shards, which stay packed.

    Members of one key, their name up to the first dot of its last part, belong together: a photo
    (``.jpg``, ``.jpeg``, ``.png``, ``.webp``, ``.bmp``, ``.gif``, ``.tif``, ``.tiff``) and its
    captions. The key is the image id, with the shard's name before it where two shards have the
    same key.

    Args:
        name: of the roster.
        folder: that shards are relative to.
        shards: file names with ``{000000..000331}``, ``*`` and ``?``, or several of them.
        part: which share of the keys, by a hash of the key: ``"val"`` and ``"test"`` get
            ``held_out`` of them each, ``"train"`` the rest; ``"all"`` gets all.
        held_out: 0: each part has all the keys of its shards.
        caption_key: of ``KEY.json``, with a text or a list of texts, or ``txt`` or ``caption`` for
            a member of this suffix; None: ``KEY.txt`` or ``KEY.caption``, or else
            ``caption`` or ``captions`` of ``KEY.json``, with ``caption_0`` and so on, or ``text``.
            Captions there that have the text of ``KEY.txt`` among them count in its place.
        cache_folder: what shards hold is kept here, so that they are listed once; None: nowhere.
        own_ids: image ids are ``image_id`` of ``KEY.json``, where each photo has one of its own.
        missing_photos: ``"error"`` or ``"drop"`` for a key that has captions alone; ``"keep"``
            takes it, as where features were imported.
        missing_captions: the same for a key without captions that can be read.
        bad_captions: the same for a caption with nothing visible, or that is no text; None: its
            photo counts as one without captions.
        duplicate_keys: the same for a member that stands twice; ``"drop"`` takes the first.
        damaged_shards: the same for a shard that is cut off or damaged; ``"drop"`` takes what lies
            before.

    Raises:
        FileNotFoundError: no such shard.
        ValueError: by the rules, names shard and member; or nothing is left.
    """
    division = Division(part=part, held_out=held_out)
    rules = Rules(missing_photos=missing_photos, missing_captions=missing_captions)
    files = shard_files(folder, shards)
    cache = None if cache_folder is None else Path(cache_folder)
    listings = _listings(tuple(files), caption_key, cache)
    pairs = list(zip(files, listings, strict=True))
    if not own_ids and any(item.split for listing in listings for item in listing.items):
        log.warning(
            f"{folder}: the key {COLUMN!r} in the shards' JSON is not used; data=own splits by it"
        )
    return packed_roster(
        name=name,
        source=f"{files[0]} and {len(files) - 1} more shards",
        photos=_photos(pairs, _prefixes(Path(folder), files, listings), own_ids),
        division=division,
        rules=rules,
        bad_captions=bad_captions,
        dropped=[
            problem
            for shard, listing in pairs
            for problem in _shard_problems(shard, listing, duplicate_keys, damaged_shards)
        ],
    )


def splits_of_shards(
    *, folder: str | Path, shards: str | list[str], caption_key: str | None
) -> dict[str, str]:
    """What the JSON of photos says of their splits, by image id as ``own_ids`` has it.

    Args:
        folder, shards, caption_key: see `read_webdataset`.
    """
    files = shard_files(folder, shards)
    listings = _listings(tuple(files), caption_key, None)
    prefixes = _prefixes(Path(folder), files, listings)
    photos = _photos(list(zip(files, listings, strict=True)), prefixes, own_ids=True)
    return {photo.image_id: photo.split for photo in photos}


@read_once
def _listings(
    files: Sequence[Path], caption_key: str | None, cache_folder: Path | None
) -> list[Listing]:
    read = partial(list_shard, caption_key=caption_key, cache_folder=cache_folder)
    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        listings = pool.map(read, files)
        label = "listing shards"
        return list(track(listings, description=label, total=len(files), transient=True))


def _prefixes(folder: Path, files: Sequence[Path], listings: Sequence[Listing]) -> dict[Path, str]:
    """What stands before the keys in image ids: the shard, where any key stands in two shards."""
    keys = {item.key for listing in listings for item in listing.items}
    if len(keys) == sum(len(listing.items) for listing in listings):
        return {}
    log.info("keys stand in several shards: image ids begin with the shard's name")
    counts = Counter(file.stem for file in files)
    names = {}
    for file in files:
        plain = file.with_suffix("")
        inside = plain.relative_to(folder) if plain.is_relative_to(folder) else plain
        names[file] = f"{file.stem if counts[file.stem] == 1 else inside}/"
    return names


def _photos(
    pairs: Sequence[tuple[Path, Listing]], prefixes: Mapping[Path, str], own_ids: bool
) -> Iterator[PackedPhoto]:
    said = [item.image_id for _, listing in pairs for item in listing.items]
    own_ids = own_ids and all(said) and len({*said}) == len(said)
    for shard, listing in pairs:
        prefix = prefixes.get(shard, "")
        for item in listing.items:
            path = member_path(shard, item.offset, item.photo) if item.photo else None
            where = f"{shard}/{item.key}"
            yield PackedPhoto(
                item.image_id if own_ids else prefix + item.key,
                path,
                item.captions,
                item.problem,
                where,
                item.bad,
                # By the key alone: the prefix may come and go with other shards.
                draw=item.key,
                sample_ids=item.sample_ids,
                split=item.split,
            )


def _shard_problems(
    shard: Path, listing: Listing, duplicate_keys: Policy, damaged_shards: Policy
) -> Iterator[Dropped]:
    if listing.damage:
        if damaged_shards == "error":
            raise SettingError(
                shard,
                listing.damage,
                "get the shard again, or take what lies before by ",
                Setting("damaged_shards", "drop"),
            )
        yield Dropped(item=str(shard), rule=f"the rest of the shard: {listing.damage}")
    for member in listing.twice:
        if duplicate_keys == "error":
            problem = f"{member} stands twice"
            raise SettingError(
                shard, problem, "pack the shard anew, or set ", Setting("duplicate_keys", "drop")
            )
        yield Dropped(item=f"{shard}/{member}", rule=TWICE)
    for member, rule in listing.left_out:
        yield Dropped(item=f"{shard}/{member}", rule=rule)
