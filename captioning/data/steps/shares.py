"""Shares of a training set, and the augmented pairs that go with them, drawn by a seed.

The CutSwap thesis (Hahn, 2022, section 4.6) trains on 100, 70, 30 and 10% of the photos, with 10,
20 and 30% as many augmented pairs of these photos, for the same number of updates.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from captioning.data.line_files import read_lines
from captioning.data.readers.coco import read_coco
from captioning.data.roster import Roster, build_roster
from captioning.data.steps.added_captions import FILE, Mixture, read_added_captions
from captioning.types import Sample

log = logging.getLogger(__name__)

ALL = Mixture()
ADDED = "added:"
"""How origins of added pairs begin; the name of their folder follows."""


def share_of_photos(roster: Roster, share: float, *, seed: int) -> Roster:
    """The captions of a share of the photos; smaller shares of a seed lie in larger ones.

    Args:
        roster: of training.
        share: of its photos, in (0, 1].
        seed: of the draw, which the roster's order does not change.

    Raises:
        ValueError: a share out of range, or so small that no photo is left.
    """
    if not 0 < share <= 1:
        raise ValueError(f"train_share must be above 0 and at most 1: got {share}")
    if share == 1:
        return roster
    number = round(share * len(roster.rows_by_image))
    kept = set(_drawn(roster.rows_by_image, seed)[:number])
    samples = [sample for sample in roster.samples if sample.image_id in kept]
    if not samples:
        raise ValueError(f"train_share={share} leaves no photo of {roster.name}: raise it")
    return build_roster(roster.name, samples, roster.dropped)


def with_added(
    roster: Roster,
    folders: Sequence[Path],
    *,
    share: float | None,
    share_of: str | None = None,
    whole: bool,
    seed: int,
    mixture: Mixture = ALL,
) -> Roster:
    """A roster with what ``captioning augment`` has written, of origin ``added:``.

    Args:
        roster: of training.
        folders: of pictures with captions, or of captions of the data's own photos.
        share: as many pictures as this share of the roster's photos are drawn; None takes all.
        share_of: ``"captions"``: as many pairs as this share of the roster's captions, in whole
            pictures; None or ``"photos"``: see ``share``.
        whole: the roster is not cut. Of one that is, only pairs pasted onto its photos are taken
            (patches may be of others), so that no photo comes back in by them.
        seed: of the draw of pictures.
        mixture: which of the captions of own photos are taken.

    Raises:
        FileNotFoundError: a folder without finished pairs.
        ValueError: a negative share, one of neither, or fewer pairs than it asks for.
    """
    captioned = [folder for folder in folders if (folder / FILE).is_file()]
    pasted = [folder for folder in folders if folder not in captioned]
    found = [pair for folder in pasted for pair in _pairs(folder, roster, whole=whole)]
    if share is not None and pasted:
        found = _some(found, roster, share, share_of or "photos", seed)
    made = [one for folder in captioned for one in read_added_captions(folder, roster)]
    found += mixture(roster.samples, made)
    log.info(f"{len(found)} pairs added from {', '.join(map(str, folders))}")
    return build_roster(roster.name, [*roster.samples, *found], roster.dropped)


def _some(
    pairs: Sequence[Sample], roster: Roster, share: float, share_of: str, seed: int
) -> list[Sample]:
    """Pairs of the first pictures in an order that the seed draws, until there are enough."""
    sizes = Counter(_name(pair) for pair in pairs)
    whole = {"photos": len(roster.rows_by_image), "captions": len(roster.samples)}
    if share_of not in whole:
        raise ValueError(f"added_share_of must be photos or captions: got {share_of!r}")
    wanted = round(share * whole[share_of])
    counted = sizes if share_of == "captions" else dict.fromkeys(sizes, 1)
    if not 0 <= wanted <= sum(counted.values()):
        raise ValueError(
            f"added_share={share} of {whole[share_of]} {share_of} asks for {wanted}: added has "
            f"{sum(counted.values())} that fit; make more, or lower it"
        )
    kept, number = set(), 0
    for name in _drawn(sizes, seed):
        if number >= wanted:
            break
        kept.add(name)
        number += counted[name]
    return [pair for pair in pairs if _name(pair) in kept]


def num_own(roster: Roster) -> int:
    """Captions of a roster that were not added."""
    return sum(not sample.origin.startswith(ADDED) for sample in roster.samples)


def _pairs(folder: Path, roster: Roster, *, whole: bool) -> list[Sample]:
    if not (folder / "captions.json").is_file():
        raise FileNotFoundError(
            f"added={folder}: no captions.json there, and no {FILE}; give a folder that python -m "
            "augmentation has written to its end"
        )
    found = read_coco(
        name=str(folder),
        annotations=folder / "captions.json",
        image_folder=folder / "images",
        instances=folder / "instances.json",
    )
    pairs = [replace(sample, origin=f"{ADDED}{folder.name}") for sample in found.samples]
    if whole:
        return pairs
    lines = read_lines(folder / "provenance.jsonl")
    records = (json.loads(line) for _, line in lines)
    photos = {r["name"]: r["target"]["image_id"] for r in records if "refused" not in r}
    return [pair for pair in pairs if photos[pair.image_id] in roster.rows_by_image]


def _name(pair: Sample) -> str:
    return f"{pair.origin}/{pair.image_id}"


def _drawn(names: Iterable[str], seed: int) -> list[str]:
    """Names in an order that depends on them and on the seed alone."""
    ordered = sorted(names)
    return [ordered[n] for n in np.random.default_rng(seed).permutation(len(ordered))]
