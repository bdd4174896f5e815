"""Webdataset shards: tar files in which ``KEY.jpg`` stands beside ``KEY.txt`` or ``KEY.json``."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Lt
from rich.progress import track

from captioning.data.readers.collector import collector_paused
from captioning.data.readers.entries import NO_PHOTO, PhotoPolicy, Policy
from captioning.data.readers.shard_names import shard_files
from captioning.data.readers.tar_listing import TWICE, Item, Listing, list_shard
from captioning.data.roster import Dropped, Roster
from captioning.ranges import Name
from captioning.types import Sample
from captioning.vision.photo_places import member_path

log = logging.getLogger(__name__)

Part = Literal["train", "val", "test", "all"]
HeldOut = Annotated[float, Ge(0), Lt(0.5)]
_NUM_THREADS = 8  # that read shards; most of the time is spent on the disk


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRules:
    """What to do where shards are not as they should be: ``"error"`` or ``"drop"``.

    Attributes:
        missing_photos: a key has captions alone. ``"keep"``: it is taken, as where features were
            imported.
        missing_captions: a key has no caption, or one that cannot be read.
        duplicate_keys: a member stands twice in a shard; ``"drop"`` takes the first.
        damaged_shards: a shard is cut off or damaged; ``"drop"`` takes what lies before.
    """

    missing_photos: PhotoPolicy = "error"
    missing_captions: Policy = "error"
    duplicate_keys: Policy = "error"
    damaged_shards: Policy = "error"


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
    missing_photos: PhotoPolicy = "error",
    missing_captions: Policy = "error",
    duplicate_keys: Policy = "error",
    damaged_shards: Policy = "error",
) -> Roster:
    """The photos and captions of shards, which stay packed.

    Members of one key, their name up to the first dot of its last part, belong together: a photo
    (``.jpg``, ``.jpeg``, ``.png``, ``.webp``) and its captions. The key is the image id, with the
    shard's name before it where two shards have the same key.

    Args:
        name: of the roster.
        folder: that shards are relative to.
        shards: file names with ``{000000..000331}``, ``*`` and ``?``, or several of them.
        part: which share of the keys, by a hash of the image id: ``"val"`` and ``"test"`` get
            ``held_out`` of them each, ``"train"`` the rest; ``"all"`` gets all.
        held_out: 0: each part has all the keys of its shards.
        caption_key: of ``KEY.json``, with a text or a list of texts; None: ``KEY.txt``, or else
            ``caption`` or ``captions`` of ``KEY.json``.
        cache_folder: what shards hold is kept here, so that they are listed once; None: nowhere.
        missing_photos, missing_captions, duplicate_keys, damaged_shards: see `ShardRules`.

    Raises:
        FileNotFoundError: no such shard.
        ValueError: by the rules, names shard and member; or nothing is left.
    """
    rules = ShardRules(
        missing_photos=missing_photos,
        missing_captions=missing_captions,
        duplicate_keys=duplicate_keys,
        damaged_shards=damaged_shards,
    )
    files = shard_files(folder, shards)
    listings = _listings(files, caption_key, None if cache_folder is None else Path(cache_folder))
    ids = _IdMaker(Path(folder), files, listings)
    dropped: list[Dropped] = []
    samples: list[Sample] = []
    for shard, listing in zip(files, listings, strict=True):
        dropped += _shard_problems(shard, listing, rules)
        for item in listing.items:
            image_id = ids(shard, item)
            if part != "all" and held_out and _part_of(image_id, held_out) != part:
                continue
            problem = _problem(shard, item, rules)
            if problem is None:
                samples += _samples(shard, item, image_id, len(samples))
            else:
                dropped.append(problem)
    if not samples:
        raise ValueError(
            f"{files[0]} and {len(files) - 1} other shards: no samples for {name} ({len(dropped)} "
            "things dropped); check shards=, held_out= and caption_key="
        )
    return Roster(name=name, samples=tuple(samples), dropped=tuple(dropped))


def _listings(
    files: Sequence[Path], caption_key: str | None, cache_folder: Path | None
) -> list[Listing]:
    read = partial(list_shard, caption_key=caption_key, cache_folder=cache_folder)
    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        listings = pool.map(read, files)
        label = "listing shards"
        return list(track(listings, description=label, total=len(files), transient=True))


class _IdMaker:
    """Image ids: keys, with the shard before them where any key stands in two shards."""

    def __init__(self, folder: Path, files: Sequence[Path], listings: Sequence[Listing]) -> None:
        keys = (item.key for listing in listings for item in listing.items)
        total = sum(len(listing.items) for listing in listings)
        self._prefixes: dict[Path, str] = {}
        if len(files) > 1 and len(set(keys)) < total:
            counts = Counter(file.stem for file in files)
            for file in files:
                plain = file.with_suffix("")
                inside = plain.relative_to(folder) if plain.is_relative_to(folder) else plain
                self._prefixes[file] = f"{file.stem if counts[file.stem] == 1 else inside}/"
            log.info("keys stand in several shards: image ids begin with the shard's name")

    def __call__(self, shard: Path, item: Item) -> str:
        return self._prefixes.get(shard, "") + item.key


def _part_of(image_id: str, held_out: float) -> str:
    """The part of the data that an image belongs to."""
    digest = hashlib.blake2b(image_id.encode(), digest_size=8).digest()
    share = int.from_bytes(digest, "big") / 2**64
    return "val" if share < held_out else "test" if share < 2 * held_out else "train"


def _shard_problems(shard: Path, listing: Listing, rules: ShardRules) -> Iterator[Dropped]:
    if listing.damage:
        if rules.damaged_shards == "error":
            raise ValueError(
                f"{shard}: {listing.damage}; get the shard again, or take what lies before "
                "by damaged_shards=drop"
            )
        yield Dropped(item=str(shard), rule=f"the rest of the shard: {listing.damage}")
    for member in listing.twice:
        if rules.duplicate_keys == "error":
            raise ValueError(
                f"{shard}: {member} stands twice; pack the shard anew, or set duplicate_keys=drop"
            )
        yield Dropped(item=f"{shard}/{member}", rule=TWICE)
    for member, rule in listing.left_out:
        yield Dropped(item=f"{shard}/{member}", rule=rule)


def _problem(shard: Path, item: Item, rules: ShardRules) -> Dropped | None:
    """Why a key gives no sample."""
    if not item.captions:
        if rules.missing_captions == "error":
            raise ValueError(
                f"{shard}: {item.key}: {item.problem}; set caption_key=, or leave such photos out "
                "by missing_captions=drop"
            )
        return Dropped(item=f"{shard}/{item.key}", rule=item.problem)
    if not item.photo and rules.missing_photos != "keep":
        if rules.missing_photos == "error":
            raise ValueError(
                f"{shard}: {item.key} has captions and no photo; pack the shard anew, or leave it "
                "out by missing_photos=drop"
            )
        return Dropped(item=f"{shard}/{item.key}", rule=NO_PHOTO)
    return None


def _samples(shard: Path, item: Item, image_id: str, row: int) -> Iterator[Sample]:
    """The samples of a key, the first in the given row."""
    photo = member_path(shard, item.offset, item.photo) if item.photo else shard / item.key
    path = Path(photo)
    for number, caption in enumerate(item.captions):
        yield Sample(
            row=row + number,
            sample_id=f"{image_id}#{number}",
            image_id=image_id,
            image_path=path,
            caption=caption,
        )
