"""Add captions generated for photos of a dataset (``captioning augment method=ssa``).

A line of ``captions.jsonl`` is a caption: the photo's ``image_id``, ``caption``, ``phrases`` with
``start``, ``text``, ``chain_id``, ``kinds`` and ``regions`` (positions among the photo's regions),
and ``boxes``: the boxes of these regions in pixels, so that other annotations are noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from captioning.config.loadable import loadable
from captioning.config.ranges import Fraction, PositiveInt, Seed
from captioning.data.annotated_boxes import sample_size
from captioning.data.batches.controls import mentioned_regions
from captioning.data.json_files import Record, load_json_lines
from captioning.data.roster import Roster
from captioning.types import Phrase, Sample
from captioning.vision.region_features import coverage

FILE = "captions.jsonl"
CLOSE = 1.0  # pixels that a box may be off


def read_added_captions(folder: str | Path, roster: Roster) -> list[Sample]:
    """Read a folder's captions of the roster's photos; their ids are ``IMAGE#FOLDER-N``.

    Args:
        folder: folder that ``captioning augment`` has written.
        roster: roster of the same data; captions of other photos are skipped.

    Raises:
        ValueError: a broken line, or regions that are not the roster's.
    """
    name = Path(folder).name
    samples = []
    for number, record in enumerate(load_json_lines(Path(folder) / FILE)):
        rows = roster.rows_by_image.get(record.text("image_id"))
        if rows is None:
            continue
        photo = roster.samples[rows[0]]
        _check_boxes(record, photo)
        samples.append(
            replace(
                photo,
                sample_id=f"{photo.image_id}#{name}-{number}",
                caption=record.text("caption"),
                phrases=tuple(_phrase(part, photo) for part in record.records("phrases")),
                origin=f"added:{name}",
                weight=1.0,
            )
        )
    return samples


def _phrase(record: Record, photo: Sample) -> Phrase:
    regions = record.items("regions")
    if not all(type(region) is int and 0 <= region < len(photo.regions) for region in regions):
        last = len(photo.regions) - 1
        raise record.invalid("regions", f"regions of {photo.image_id!r}, numbers up to {last}")
    return Phrase(
        start=record.integer("start", 0),
        text=record.text("text"),
        chain_id=record.text("chain_id"),
        kinds=tuple(map(str, record.items("kinds"))),
        regions=tuple(regions),
    )


def _check_boxes(record: Record, photo: Sample) -> None:
    """Check that regions equal the training data's, because captions refer to their positions."""
    for part in record.records("boxes"):
        region, box = part.integer("region", 0), part.numbers("box", 4)
        is_known = region < len(photo.regions)
        if not is_known or np.abs(np.subtract(photo.regions[region].box, box)).max() > CLOSE:
            raise ValueError(
                f"{record.where}: region {region} of {photo.image_id!r} differs from the training "
                f"data's region; make the captions again from these annotations"
            )


def focus(sample: Sample) -> float:
    """Return the share of the photo covered by the boxes of a caption's phrases, in [0, 1].

    1 for a caption without boxes: its control is the full photo.
    """
    regions = mentioned_regions(sample)
    if not regions:
        return 1.0
    boxes = [sample.regions[region].box for region in regions]
    return coverage(boxes, *sample_size(sample))


@loadable
@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Selection of generated captions that are added to the original ones (CIC-BART-SSA, 4.1).

    Attributes:
        share: share of the generated captions, drawn at random, in [0, 1].
        bins: bins of coverage. Captions drawn at random fill them until all are as full as the
            fullest bin of the original captions, or none are left; None: ``share`` alone decides.
        seed: seed of the draws.

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

    def __call__(self, original: Sequence[Sample], generated: Sequence[Sample]) -> list[Sample]:
        """Return the ``generated`` captions to add to ``original``, in order."""
        rng = np.random.default_rng(self.seed)
        order = rng.permutation(len(generated))
        if self.bins is None:
            selected = order[: round(self.share * len(generated))]
        else:
            selected = _fill_bins(original, generated, order, self.bins)
        return [generated[position] for position in sorted(selected)]


def _fill_bins(
    original: Sequence[Sample], generated: Sequence[Sample], order: np.ndarray, bins: int
) -> list[int]:
    edges = np.linspace(0, 1, bins + 1)[1:-1]
    original_counts = np.bincount(np.digitize([focus(s) for s in original], edges), minlength=bins)
    bin_of = np.digitize([focus(sample) for sample in generated], edges)
    room = original_counts.max() - original_counts
    selected = []
    for position in order:
        if room[bin_of[position]] > 0:
            room[bin_of[position]] -= 1
            selected.append(int(position))
    return selected
