"""Captions made for photos of a data set (``captioning augment method=ssa``), and mixtures.

A line of ``captions.jsonl`` is a caption: the photo's ``image_id``, ``caption``, ``phrases`` with
``start``, ``text``, ``chain_id``, ``kinds`` and ``regions``, which are positions in the photo's own
regions, and ``boxes`` with the boxes of these in pixels, so that other annotations are noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from captioning.data.batches.controls import spoken_of
from captioning.data.boxes import photo_size
from captioning.data.json_files import Record, load_json_lines
from captioning.data.roster import Roster
from captioning.ranges import Fraction, PositiveInt, Seed
from captioning.types import Phrase, Sample
from captioning.vision.boxes import coverage

FILE = "captions.jsonl"
CLOSE = 1.0  # pixels that a box may be off


def read_added_captions(folder: str | Path, roster: Roster) -> list[Sample]:
    """The captions of a folder whose photos the roster has; their ids are ``IMAGE#FOLDER-N``.

    Args:
        folder: what ``captioning augment`` has written.
        roster: of the same data; captions of photos that it lacks are passed over.

    Raises:
        ValueError: a broken line, or regions that are not the roster's.
    """
    name = Path(folder).name
    found = []
    for number, record in enumerate(load_json_lines(Path(folder) / FILE)):
        rows = roster.rows_by_image.get(record.text("image_id"))
        if rows is None:
            continue
        photo = roster.samples[rows[0]]
        _check_boxes(record, photo)
        found.append(
            replace(
                photo,
                sample_id=f"{photo.image_id}#{name}-{number}",
                caption=record.text("caption"),
                phrases=tuple(_phrase(part) for part in record.records("phrases")),
                origin=f"added:{name}",
                weight=1.0,
            )
        )
    return found


def _phrase(record: Record) -> Phrase:
    return Phrase(
        start=record.integer("start", 0),
        text=record.text("text"),
        chain_id=record.text("chain_id"),
        kinds=tuple(map(str, record.items("kinds"))),
        regions=tuple(map(int, record.items("regions"))),
    )


def _check_boxes(record: Record, photo: Sample) -> None:
    """Regions are positions: they mean nothing for other annotations."""
    for part in record.records("boxes"):
        region, box = part.integer("region", 0), part.numbers("box", 4)
        known = region < len(photo.regions)
        if not known or np.abs(np.subtract(photo.regions[region].box, box)).max() > CLOSE:
            raise ValueError(
                f"{record.where}: region {region} of {photo.image_id} is not that of the data "
                "that is trained on; make the captions anew from these annotations"
            )


def focus(sample: Sample) -> float:
    """Share of the photo that a caption speaks of, in [0, 1]: the boxes of its phrases together.

    1 for a caption without boxes, which is asked to speak of the photo as a whole.
    """
    regions = spoken_of(sample)
    if not regions:
        return 1.0
    boxes = [sample.regions[region].box for region in regions]
    return coverage(boxes, *photo_size(sample.image_path))


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """How much of what was made is added to the people's captions (CIC-BART-SSA, section 4.1).

    Attributes:
        share: of the captions made, drawn at random, in [0, 1].
        bins: of coverage, filled up with captions drawn at random until all are as full as the
            fullest bin of people's captions, as far as there are any; None: at random alone.
        seed: of the draws.

    Raises:
        ValueError: a share or a number of bins out of its range.
    """

    share: Fraction = 1.0
    bins: PositiveInt | None = None
    seed: Seed = 0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or (self.bins is not None and self.bins < 1):
            raise ValueError(
                "steps.add_pairs.mixture.share must lie in [0, 1] and its bins be at least 1: got "
                f"{self.share} and {self.bins}"
            )

    def __call__(self, own: Sequence[Sample], made: Sequence[Sample]) -> list[Sample]:
        """Those of ``made`` that are added to ``own``, in order."""
        rng = np.random.default_rng(self.seed)
        order = rng.permutation(len(made))
        if self.bins is None:
            kept = order[: round(self.share * len(made))]
        else:
            kept = _uniform(own, made, order, self.bins)
        return [made[position] for position in sorted(kept)]


def _uniform(
    own: Sequence[Sample], made: Sequence[Sample], order: np.ndarray, bins: int
) -> list[int]:
    edges = np.linspace(0, 1, bins + 1)[1:-1]
    full = np.bincount(np.digitize([focus(s) for s in own], edges), minlength=bins)
    bin_of = np.digitize([focus(sample) for sample in made], edges)
    room = full.max() - full
    kept = []
    for position in order:
        if room[bin_of[position]] > 0:
            room[bin_of[position]] -= 1
            kept.append(int(position))
    return kept
