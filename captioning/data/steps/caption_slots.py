"""Room for captions that a model will write: samples of weight 0 that wait for them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from captioning.config.ranges import PositiveInt
from captioning.data.roster import Roster, build_roster
from captioning.data.steps.base import AbstractStep, StepContext
from captioning.types import UNPAIRED, Sample

SLOT = "#made"
"""Stands between ``image_id`` and number in the ids of these samples."""
WAITING = "a photo"  # words that every vocabulary has


@dataclass(frozen=True, kw_only=True)
class CaptionSlots(AbstractStep):
    """Adds samples without a caption to every photo, for captions by CapFilt.

    They have origin `UNPAIRED` and weight 0, so they are not trained on until a policy has filled
    them; what it leaves empty it removes.

    Attributes:
        per_photo: samples a photo, at least 1.

    Raises:
        ValueError: less than 1.
    """

    per_photo: PositiveInt = 1

    def __post_init__(self) -> None:
        if not isinstance(self.per_photo, int) or self.per_photo < 1:
            raise ValueError(
                "steps.caption_slots.per_photo must be a whole number of at least 1: got "
                f"{self.per_photo!r}"
            )

    def __call__(self, roster: Roster, context: StepContext) -> Roster:
        """The roster with the waiting samples behind its own."""
        del context
        return with_slots(roster, self.per_photo)


def with_slots(roster: Roster, per_photo: int) -> Roster:
    """The roster with ``per_photo`` waiting samples a photo behind its own."""
    slots = [
        _slot(roster.samples[rows[0]], number)
        for rows in roster.rows_by_image.values()
        for number in range(per_photo)
    ]
    return build_roster(roster.name, [*roster.samples, *slots], roster.dropped)


def _slot(sample: Sample, number: int) -> Sample:
    return replace(
        sample,
        sample_id=f"{sample.image_id}{SLOT}{number}",
        caption=WAITING,
        phrases=(),
        origin=UNPAIRED,
        weight=0.0,
    )
