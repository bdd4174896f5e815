"""Splits of one's own photos: parts joined, chosen, or drawn where nothing says them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from captioning.data.readers.packed import Part
from captioning.data.readers.split_words import Split
from captioning.data.roster import Dropped, Roster, build_roster
from captioning.types import Sample


class ReadPart(NamedTuple):
    """What is read of a source.

    Attributes:
        source: its place below the folder, without suffix.
        split: None: nothing says which.
        roster: its photos and captions.
    """

    source: str
    split: Split | None
    roster: Roster


def joined(name: str, parts: Sequence[ReadPart]) -> Roster:
    """One roster; image ids that several sources have begin with the split, or with the source.

    Raises:
        ValueError: a photo has captions in two sources of one split; names both.
    """
    if len(parts) == 1:
        return parts[0].roster
    _check_apart(parts)
    splits = [part.split for part in parts]
    ids = [image_id for part in parts for image_id in part.roster.rows_by_image]
    is_unique = len(set(ids)) == len(ids)
    samples: list[Sample] = []
    dropped: list[Dropped] = []
    for source, split, roster in parts:
        label = split if split is not None and splits.count(split) == 1 else source
        dropped += roster.dropped
        samples += roster.samples if is_unique else (_named(s, label) for s in roster.samples)
    return build_roster(name, samples, dropped)


def _check_apart(parts: Sequence[ReadPart]) -> None:
    """Raises ValueError where two sources of a split have the same photo."""
    first: dict[tuple[Split | None, Path], str] = {}
    for source, split, roster in parts:
        for path in dict.fromkeys(sample.image_path for sample in roster.samples):
            known = first.setdefault((split, path), source)
            if known != source:
                raise ValueError(
                    f"{path}: has captions in {known} and in {source}; choose one by annotations=, "
                    "or join the two"
                )


def _named(sample: Sample, label: str) -> Sample:
    return replace(
        sample, image_id=f"{label}/{sample.image_id}", sample_id=f"{label}/{sample.sample_id}"
    )


def chosen(roster: Roster, image_ids: Collection[str], part: Part) -> Roster:
    """The samples of some photos; what was left out is said of the training part alone."""
    samples = [sample for sample in roster.samples if sample.image_id in image_ids]
    return build_roster(roster.name, samples, roster.dropped if part == "train" else ())


def share(roster: Roster, part: Part, lacking: Sequence[str], held_out: float, seed: int) -> Roster:
    """A part of a roster, by photo: each split that lacks gets its share of those in hash order.

    Args:
        roster: of all photos that are divided.
        part: that is wanted, of train and the lacking.
        lacking: splits that get ``held_out`` of the photos each, at least one; train the rest.
        held_out, seed: of the draw.

    Raises:
        ValueError: too few photos.
    """
    image_ids = list(roster.rows_by_image)
    order = sorted(image_ids, key=lambda image_id: _draw(image_id, seed))
    number = max(1, round(held_out * len(order)))
    if number * len(lacking) >= len(order):
        raise ValueError(
            f"{roster.name}: {len(order)} photos are too few to be split into "
            f"{['train', *lacking]}; add photos, or give the folder splits of its own"
        )
    shares = {split: order[n * number : (n + 1) * number] for n, split in enumerate(lacking)}
    shares["train"] = order[len(lacking) * number :]
    return chosen(roster, set(shares[part]), part)


def _draw(image_id: str, seed: int) -> bytes:
    key = json.dumps([seed, image_id]).encode()
    return hashlib.blake2b(key, digest_size=8).digest()
