"""Split the user's photos: join or select parts, or draw splits if no file defines them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from captioning.config.setting_error import Setting, SettingError
from captioning.data.readers.entries import UNNAMED
from captioning.data.readers.packed import Part
from captioning.data.readers.split_words import Split
from captioning.data.roster import Dropped, Roster, build_roster
from captioning.types import Sample


class ReadPart(NamedTuple):
    """Function that reads one part of a source.

    Attributes:
        source: its place below the folder, without suffix.
        split: None: nothing says which.
        roster: its photos and captions.
        folder: base of its photo names.
    """

    source: str
    split: Split | None
    roster: Roster
    folder: Path = Path()


def joined(name: str, parts: Sequence[ReadPart]) -> Roster:
    """Join parts in one roster; ids begin with the split, or the source if several share a split.

    Raises:
        ValueError: a photo has captions in two sources of one split; names both.
    """
    if len(parts) == 1:
        return parts[0].roster
    _check_apart(parts)
    splits = [part.split for part in parts]
    is_unique = all(
        len(set(ids)) == len(ids)
        for ids in (
            [image_id for part in parts for image_id in part.roster.rows_by_image],
            [sample_id for part in parts for sample_id in part.roster.by_id],
        )
    )
    samples: list[Sample] = []
    for source, split, roster, _ in parts:
        label = split if split is not None and splits.count(split) == 1 else source
        samples += roster.samples if is_unique else (_named(s, label) for s in roster.samples)
    return build_roster(name, samples, _left_out(parts))


def _left_out(parts: Sequence[ReadPart]) -> list[Dropped]:
    """Return the items that the parts leave out, without photos captioned in another part."""
    captioned = {sample.image_path for part in parts for sample in part.roster.samples}
    known: dict[tuple[Path, str], Dropped] = {}
    for part in parts:
        for drop in part.roster.dropped:
            path = part.folder / drop.item
            if drop.rule != UNNAMED or path not in captioned:
                known.setdefault((path, drop.rule), drop)
    return list(known.values())


def _check_apart(parts: Sequence[ReadPart]) -> None:
    """Raise an error if two sources of a split have the same photo."""
    first: dict[tuple[Split | None, Path], str] = {}
    for source, split, roster, _ in parts:
        for path in dict.fromkeys(sample.image_path for sample in roster.samples):
            known = first.setdefault((split, path), source)
            if known != source:
                problem = f"has captions in {known} and in {source}"
                raise SettingError(
                    path, problem, "choose one by ", Setting("annotations"), ", or join the two"
                )


def _named(sample: Sample, label: str) -> Sample:
    return replace(
        sample, image_id=f"{label}/{sample.image_id}", sample_id=f"{label}/{sample.sample_id}"
    )


def chosen(roster: Roster, image_ids: Collection[str], part: Part) -> Roster:
    """Select the samples of some photos; only the training part reports omissions."""
    samples = [sample for sample in roster.samples if sample.image_id in image_ids]
    return build_roster(roster.name, samples, roster.dropped if part == "train" else ())


def drawn(
    roster: Roster,
    part: Part,
    lacking: Sequence[str],
    held_out: float,
    seed: int,
    keys: Mapping[Path, str],
) -> Roster:
    """Draw a part of a roster by the photos' contents, independent of the other photos.

    A photo's content and the seed give a number in [0, 1). Photos below ``held_out`` belong to the
    test, photos below twice that to validation. So a set and a cleaned copy of it, in any layout,
    have the same test photos, and copies of a photo are in one split. Where a split would have no
    photo, it gets the next one.

    Args:
        roster: roster of all photos that are divided.
        part: the requested part, train or a missing one.
        lacking: splits that get about ``held_out`` of the photos each, at least one; train the
            rest.
        held_out, seed: settings of the draw.
        keys: content by path; a photo without one is drawn by its image id.

    Raises:
        ValueError: too few photos.
    """
    contents = {
        image_id: keys.get(roster.samples[rows[0]].image_path, image_id)
        for image_id, rows in roster.rows_by_image.items()
    }
    places = {content: _place(content, seed) for content in dict.fromkeys(contents.values())}
    if len(places) <= len(lacking):
        raise _too_few(roster, len(places), lacking)
    free = sorted(places, key=places.__getitem__)
    shares: dict[str, list[str]] = {}
    for low, split in ((0.0, "test"), (held_out, "val")):
        if split not in lacking:
            continue
        own = [content for content in free if low <= places[content] < low + held_out]
        room = len(free) - sum(other not in (split, *shares) for other in lacking) - 1
        further = [content for content in free if places[content] >= low] or free
        shares[split] = own[:room] or further[:1]
        free = [content for content in free if content not in set(shares[split])]
    shares["train"] = free
    wanted = set(shares[part])
    return chosen(roster, {i for i, content in contents.items() if content in wanted}, part)


def _place(content: str, seed: int) -> float:
    return int.from_bytes(_draw(content, seed)) / 2**64


def _too_few(roster: Roster, number: int, lacking: Sequence[str]) -> ValueError:
    problem = f"{number} photos are too few to be split into {['train', *lacking]}"
    return SettingError(roster.name, problem, "add photos, or give the folder splits of its own")


def share(roster: Roster, part: Part, lacking: Sequence[str], held_out: float, seed: int) -> Roster:
    """Draw a part by the hash order of image ids, as earlier runs did.

    Raises:
        ValueError: too few photos.
    """
    image_ids = list(roster.rows_by_image)
    order = sorted(image_ids, key=lambda image_id: _draw(image_id, seed))
    number = max(1, round(held_out * len(order)))
    if number * len(lacking) >= len(order):
        raise _too_few(roster, len(order), lacking)
    shares = {split: order[n * number : (n + 1) * number] for n, split in enumerate(lacking)}
    shares["train"] = order[len(lacking) * number :]
    return chosen(roster, set(shares[part]), part)


def _draw(image_id: str, seed: int) -> bytes:
    key = json.dumps([seed, image_id]).encode()
    return hashlib.blake2b(key, digest_size=8).digest()
