"""Read webdataset shards: tar files with ``KEY.jpg`` beside ``KEY.txt`` or ``KEY.json``."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rich.progress import track

from captioning.config.loadable import loadable
from captioning.config.ranges import Name
from captioning.config.setting_error import Setting, SettingError
from captioning.data.line_files import decode
from captioning.data.photo_folder import checked_file_name
from captioning.data.readers.caption_columns import found_captions, numbered_captions
from captioning.data.readers.entries import (
    NO_CAPTION,
    PhotoPolicy,
    Policy,
    Rules,
    stated_id,
    stated_ids,
)
from captioning.data.readers.many_samples import collector_paused
from captioning.data.readers.packed import (
    Division,
    HeldOut,
    PackedPhoto,
    Part,
    good_and_bad,
    packed_roster,
)
from captioning.data.readers.read_once import read_once
from captioning.data.readers.shard_names import shard_files
from captioning.data.readers.split_words import COLUMN
from captioning.data.roster import Dropped, Roster
from captioning.runtime.files import write_json
from captioning.vision.line_store import key_of
from captioning.vision.photo_places import member_path, photo_stamp
from captioning.vision.shards.tar_headers import FILE, FOLDER, Member, members
from captioning.vision.shards.tar_member import MAX_PHOTO_BYTES

log = logging.getLogger(__name__)

PHOTOS = ("jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff")
TEXTS, JSON = ("txt", "caption"), "json"
CAPTION_KEYS = ("caption", "captions")
OTHER_KEY = "text"  # where a record has neither of these, not even null, nor caption_0
MAX_TEXT_BYTES = 1024**2
TWICE = "occurs twice in its shard; the first counts"
_DOTTED = {(".", suffix) for suffix in PHOTOS}
_VERSION = 7


@dataclass(slots=True)
class Item:
    """Members of a shard that share a key.

    Attributes:
        key: the members' name up to the first dot of its last part.
        photo: name of the member with the photo; empty: it has none.
        offset: offset of that member's header in bytes.
        captions: the good ones, normalised.
        problem: why there are none.
        bad: why further captions are none, for each.
        image_id: image id in the ``.json``; empty: none.
        sample_ids: sample ids of the captions, as the ``.json`` has them; empty: it has none.
        split: split in the ``.json``; empty: none.
    """

    key: str
    photo: str = ""
    offset: int = -1
    captions: tuple[str, ...] = ()
    problem: str = NO_CAPTION
    bad: tuple[str, ...] = ()
    image_id: str = ""
    sample_ids: tuple[str, ...] = ()
    split: str = ""


class _Captions(NamedTuple):
    """Captions of a member, with problems of its values and of the member itself.

    ``image_id``, ``sample_ids`` and ``split`` are as in `Item`.
    """

    good: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()
    problem: str = NO_CAPTION
    image_id: str = ""
    sample_ids: tuple[str, ...] = ()
    split: str = ""


@dataclass(slots=True)
class Listing:
    """Content of a shard.

    Attributes:
        items: items by key, in the order of the shard.
        twice: names of members that stand there a second time.
        left_out: names and rules of members other than photos or texts.
        damage: the shard's damage after the last item; empty: none.
    """

    items: list[Item] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    damage: str = ""


def list_shard(shard: Path, caption_key: str | None, cache_folder: Path | None) -> Listing:
    """List the content of a shard; a changed shard is read again.

    Args:
        shard: a tar file.
        caption_key: key of the ``.json`` members, or ``txt`` or ``caption``; None: captions are the
            ``.txt`` or ``.caption`` members, or else ``caption`` or ``captions`` of the ``.json``
            members, with ``caption_0`` and so on, or ``text``. A list there that has the text of
            ``.txt``, too, counts in its place.
        cache_folder: caches listings; None: no cache.

    Raises:
        FileNotFoundError: no such file.
    """
    stamp = list(photo_stamp(shard))
    if cache_folder is None:
        return _scan(shard, caption_key)
    kept = cache_folder / f"{key_of(os.path.abspath(shard), str(caption_key))}.json"
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        content = json.loads(kept.read_bytes())  # a damaged one costs time alone
        if content["version"] == _VERSION and content["stamp"] == stamp:
            return _restored(content)
    listing = _scan(shard, caption_key)
    write_json(kept, _plain(listing, stamp), indent=None)
    return listing


def _plain(listing: Listing, stamp: list[int]) -> dict[str, Any]:
    rows = [
        [i.key, i.photo, i.offset, i.captions, i.problem, i.bad, i.image_id, i.sample_ids, i.split]
        for i in listing.items
    ]
    head = {"version": _VERSION, "stamp": stamp, "damage": listing.damage}
    return head | {"twice": listing.twice, "left_out": listing.left_out, "items": rows}


def _restored(content: Mapping[str, Any]) -> Listing:
    items = [
        Item(
            *(str(key), str(photo), int(offset), tuple(map(str, captions)), str(problem)),
            *(tuple(map(str, bad)), str(image_id), tuple(map(str, sample_ids)), str(split)),
        )
        for key, photo, offset, captions, problem, bad, image_id, sample_ids, split in content[
            "items"
        ]
    ]
    if len({item.key for item in items}) != len(items):
        raise ValueError("a key occurs twice")
    return Listing(
        items=items,
        twice=[str(name) for name in content["twice"]],
        left_out=[(str(name), str(rule)) for name, rule in content["left_out"]],
        damage=" ".join(str(content["damage"]).split()),
    )


def _scan(shard: Path, caption_key: str | None) -> Listing:
    listing = Listing()
    items: dict[str, Item] = {}
    suffixes: set[tuple[str, str]] = set()
    texts: dict[str, dict[str, _Captions]] = {}
    dotted: list[tuple[str, str]] = []
    with shard.open("rb") as file:
        try:
            for member, key, suffix in _of_interest(file, listing, dotted):
                if (key, suffix) in suffixes:
                    listing.twice.append(member.name)
                    continue
                suffixes.add((key, suffix))
                item = items.setdefault(key, Item(key))
                if suffix not in PHOTOS:
                    file.seek(member.offset + 512)
                    data = file.read(member.size)
                    texts.setdefault(key, {})[suffix] = _captions(data, suffix, caption_key)
                elif not item.photo:
                    item.photo, item.offset = member.name, member.offset
        except ValueError as error:
            listing.damage = str(error)
    for key, found in texts.items():
        _describe(items[key], found, caption_key)
    listing.items = list(items.values())
    with_photo = {item.key for item in listing.items if item.photo}
    listing.left_out += [
        (name, f"its key ends at the first dot: {key!r}, of which there is no photo")
        for name, key in dotted
        if key not in with_photo
    ]
    return listing


def _of_interest(
    file: BinaryIO, listing: Listing, dotted: list[tuple[str, str]]
) -> Iterator[tuple[Member, str, str]]:
    """Yield plain files that may be a photo or a caption, with key and suffix.

    Names and keys of photos with more dots, such as ``a.left.jpg``, are added to ``dotted``.
    """
    for member in members(file, os.fstat(file.fileno()).st_size):
        _, _, base = member.name.rpartition("/")
        stem, _, suffix = base.partition(".")
        suffix = suffix.lower()
        if member.kind == FILE and stem and suffix.rpartition(".")[1:] in _DOTTED:
            dotted.append((member.name, member.name.removesuffix(base) + stem))
        if member.kind == FOLDER or not stem or suffix not in (*PHOTOS, *TEXTS, JSON):
            continue
        limit = MAX_PHOTO_BYTES if suffix in PHOTOS else MAX_TEXT_BYTES
        if member.kind != FILE:
            listing.left_out.append((member.name, f"is a {member.kind}, not a plain file"))
        elif member.size > limit:
            listing.left_out.append((member.name, f"has {member.size} bytes, at most {limit}"))
        else:
            try:
                name = checked_file_name(member.name, "member")
            except SettingError as error:
                listing.left_out.append((member.name, error.finding))
                continue
            key = name.removesuffix(base) + stem
            yield Member(name, member.kind, member.size, member.offset), key, suffix


def _describe(item: Item, found: dict[str, _Captions], caption_key: str | None) -> None:
    """Fill in an item's captions, and the ids in its ``.json`` file."""
    texts = [found[suffix] for suffix in TEXTS if suffix in found]
    text, about = (texts or [_Captions()])[0], found.get(JSON, _Captions())
    if caption_key in TEXTS:
        text = found.get(caption_key, _Captions())
    elif len({one.good for one in texts if one.good}) > 1:
        text = _Captions(problem="its .txt and .caption differ; name one as the key of captions")
    item.image_id, item.split = about.image_id, about.split
    if caption_key in TEXTS:
        chosen = text
    elif caption_key is not None or (
        about.good and not about.bad and {*text.good} <= {*about.good}
    ):
        chosen = about
    else:
        chosen = text if text.good or len(texts) > 1 else list(found.values())[-1]
    item.captions, item.bad, item.problem = chosen.good, chosen.bad, chosen.problem
    item.sample_ids = chosen.sample_ids


def _captions(data: bytes, suffix: str, caption_key: str | None) -> _Captions:
    """Return the captions of a member."""
    try:
        value: Any = decode(data, f"members/x.{suffix}")
    except ValueError:
        return _Captions(problem=f"its .{suffix} is not UTF-8")
    try:
        record = json.loads(value) if suffix == JSON else None
        if suffix == JSON:
            value = _value(record, caption_key)
        values = [value] if isinstance(value, str) else value
        about = record if isinstance(record, dict) else {}
        named = stated_id(about.get("image_id"))
        said = next((about[key] for key in about if key.strip().lower() == COLUMN), "")
        split = said if isinstance(said, str) else ""
        if not isinstance(values, list) or not values:
            return _Captions(image_id=named, split=split)
        good, bad = good_and_bad(values)
        return _Captions(good, bad, NO_CAPTION, named, stated_ids(about.get("sample_ids")), split)
    except (ValueError, RecursionError):
        return _Captions(problem="its .json is not JSON")


def _value(record: Any, caption_key: str | None) -> Any:
    if isinstance(record, list) and caption_key is None:
        return [one.get("caption") if isinstance(one, dict) else one for one in record]
    if not isinstance(record, dict):
        return None
    if caption_key is not None:
        return record.get(caption_key)
    names = [name for name in record if record[name] is not None]
    keys = [key for key in CAPTION_KEYS if key in names][:1]
    keys += [names[place] for place in numbered_captions(names, "caption")]
    if not keys and not any(key in record for key in CAPTION_KEYS):
        found = () if OTHER_KEY in record else found_captions(names, "its .json")
        keys = [names[place] for place in found] or [OTHER_KEY]
    if len(keys) == 1:
        return record.get(keys[0])
    values = (record[key] for key in keys)
    return [one for value in values for one in (value if isinstance(value, list) else [value])]


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
    """Read photos and captions of shards; photos stay in the shards.

    Members of one key, their name up to the first dot of its last part, belong together: a photo
    (``.jpg``, ``.jpeg``, ``.png``, ``.webp``, ``.bmp``, ``.gif``, ``.tif``, ``.tiff``) and its
    captions. The key is the image id, with the shard's name before it where two shards have the
    same key.

    Args:
        name: the roster's name.
        folder: base of the shards' paths.
        shards: file names with ``{000000..000331}``, ``*`` and ``?``, or several of them.
        part: share of the keys, by a hash of the key: ``"val"`` and ``"test"`` get ``held_out`` of
            them each, ``"train"`` the rest; ``"all"`` gets all.
        held_out: 0: each part has all the keys of its shards.
        caption_key: key of ``KEY.json``, with a text or a list of texts, or ``txt`` or ``caption``
            for a member of this suffix; None: ``KEY.txt`` or ``KEY.caption``, or else ``caption``
            or ``captions`` of ``KEY.json``, with ``caption_0`` and so on, or ``text``. Captions
            there that have the text of ``KEY.txt`` among them count in its place.
        cache_folder: caches the shards' listings; None: no cache.
        own_ids: image ids are ``image_id`` of ``KEY.json``, if each photo has its own.
        missing_photos: ``"error"`` or ``"drop"`` for a key that has captions alone; ``"keep"``
            takes it, as where features were imported.
        missing_captions: the same for a key without captions that can be read.
        bad_captions: the same for a caption that is blank or not text; None: its photo counts as
            one without captions.
        duplicate_keys: the same for a member that occurs twice; ``"drop"`` takes the first.
        damaged_shards: the same for a shard that is cut off or damaged; ``"drop"`` keeps the
            members before the damage.

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
            f"{folder}: the key {COLUMN!r} in the shards' JSON is ignored; data=own splits by it"
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
    """Return the splits in the photos' JSON by image id; ``own_ids`` defines the ids.

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
    """Return the prefix of keys in image ids: the shard's name if two shards share a key."""
    keys = {item.key for listing in listings for item in listing.items}
    if len(keys) == sum(len(listing.items) for listing in listings):
        return {}
    log.info("several shards hold the same key: image ids begin with the shard's name")
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
            problem = f"{member} occurs twice"
            raise SettingError(
                shard, problem, "pack the shard again, or set ", Setting("duplicate_keys", "drop")
            )
        yield Dropped(item=f"{shard}/{member}", rule=TWICE)
    for member, rule in listing.left_out:
        yield Dropped(item=f"{shard}/{member}", rule=rule)
