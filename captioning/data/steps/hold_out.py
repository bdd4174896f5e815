"""Steps that create photos without captions: held-out classes, and slots for a model's captions.

Held-out COCO (Hendricks et al., "Deep Compositional Captioning", CVPR 2016) leaves out every photo
with a caption that mentions one of eight objects. Bujimalla et al. use these photos further,
without captions but with the names of the objects in them: *partially paired* data.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from captioning.config.ranges import NonNegativeInt, PositiveInt
from captioning.data.region_labels import relabel_regions
from captioning.data.roster import Dropped, Roster, build_roster
from captioning.data.steps.base import AbstractStep, StepContext
from captioning.text.lemmas import Lemmatizer, load_lemmas
from captioning.text.object_words import LEMMAS
from captioning.text.word_forms import count_remaining_forms, form_patterns, mentioned_classes
from captioning.types import UNPAIRED, Sample

log = logging.getLogger(__name__)

MAX_SHOWN = 10  # words in a warning
SLOT = "#made"
"""Separates ``image_id`` from the number in the ids of these samples."""


@dataclass(frozen=True, kw_only=True)
class HoldOut(AbstractStep):
    """Step that removes the captions of photos with held-out classes, see `hold_out`.

    Attributes:
        classes: word forms by class, such as ``{"bus": ["bus", "buses"]}``.
        samples_per_photo: samples that each left-out photo keeps for captions that are yet to be
            written, at least 0.

    Raises:
        ValueError: a negative number.
    """

    classes: Mapping[str, Sequence[str]]
    samples_per_photo: NonNegativeInt = 0

    def __post_init__(self) -> None:
        if not isinstance(self.samples_per_photo, int) or self.samples_per_photo < 0:
            raise ValueError(
                "steps.hold_out.samples_per_photo must be a whole number of at least 0: got "
                f"{self.samples_per_photo!r}"
            )

    def __call__(self, roster: Roster, context: StepContext) -> Roster:
        """Return the remaining captions; store the classes' word forms in the context.

        Steps behind this one learn that photos are left out, see `StepContext.is_cut`.
        """
        lemmatizer = load_lemmas(LEMMAS)
        classes = self._mentioned(roster) if context.is_cut else self.classes
        remaining = hold_out(
            roster,
            classes=classes,
            lemmatizer=lemmatizer,
            samples_per_photo=self.samples_per_photo,
        )
        context.is_cut = True
        paired = [sample.caption for sample in remaining.samples if sample.origin != UNPAIRED]
        log.info(
            f"{roster.name}: holding out removed {len(remaining.dropped) - len(roster.dropped)} "
            f"captions and left {len(remaining) - len(paired)} samples without caption"
        )
        context.held_out_remaining = count_remaining_forms(paired, self.classes, lemmatizer)
        _warn(roster.name, context.held_out_remaining)
        return remaining

    def _mentioned(self, roster: Roster) -> Mapping[str, Sequence[str]]:
        """Return the classes that captions of some photos mention; log the others."""
        mentioned = set().union(*classes_shown(roster, self.classes).values(), ())
        if missing := sorted(self.classes.keys() - mentioned):
            log.warning(
                f"{roster.name}: no caption of these photos mentions the held-out "
                f"{', '.join(missing)}"
            )
        return {name: forms for name, forms in self.classes.items() if name in mentioned}


def _warn(name: str, counts: Mapping[str, int]) -> None:
    if counts:
        words = ", ".join(f"{word} ({count})" for word, count in list(counts.items())[:MAX_SHOWN])
        log.warning(
            f"{name}: the training captions still hold held-out words, with counts: {words}; "
            "to hold them out too, add them to steps.hold_out.classes"
        )


def hold_out(
    roster: Roster,
    *,
    classes: Mapping[str, Sequence[str]],
    lemmatizer: Lemmatizer,
    samples_per_photo: int = 0,
) -> Roster:
    """Return a training set without the captions of photos that show held-out classes.

    A photo shows a class if one of its captions mentions one of the class's word forms as whole
    words, in any case. All its captions are left out.

    Args:
        roster: roster of training.
        classes: word forms by class, such as ``{"bus": ("bus", "buses")}``; phrases are allowed.
        lemmatizer: gives the singular of region labels, which are taken from the captions.
        samples_per_photo: samples that each left-out photo keeps, of origin `UNPAIRED` and weight
            0, for captions that are yet to be written (`curation.amend.pseudo_label`); 0 leaves
            the photos out.

    Returns:
        The remaining captions, then the unpaired samples; ``dropped`` lists what was left out.

    Raises:
        ValueError: a class without forms, a class that no caption mentions, or
            classes that all photos show.
    """
    classes_by_photo = classes_shown(roster, classes)
    if missing := sorted(classes.keys() - set().union(*classes_by_photo.values(), ())):
        raise ValueError(
            f"{roster.name}: no caption mentions the held-out {', '.join(missing)}: check "
            "steps.hold_out.classes, and that each has the forms that captions use"
        )
    paired = [sample for sample in roster.samples if sample.image_id not in classes_by_photo]
    if not paired:
        raise ValueError(f"{roster.name}: every photo shows a held-out class: hold out fewer")
    dropped = [
        Dropped(
            item=roster.samples[row].sample_id, rule=f"held out: {', '.join(sorted(photo_classes))}"
        )
        for image_id, photo_classes in classes_by_photo.items()
        for row in roster.rows_by_image[image_id]
    ]
    unpaired = [
        sample
        for image_id, photo_classes in classes_by_photo.items()
        for sample in _unpaired(
            [roster.samples[row] for row in roster.rows_by_image[image_id]],
            photo_classes,
            number=samples_per_photo,
            lemmatizer=lemmatizer,
        )
    ]
    return build_roster(roster.name, [*paired, *unpaired], [*roster.dropped, *dropped])


def classes_shown(roster: Roster, classes: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    """Return the classes that each photo's captions mention; photos without any are left out.

    Raises:
        ValueError: a class without forms.
    """
    patterns = form_patterns(classes)
    classes_by_photo: dict[str, set[str]] = {}
    for sample in roster.samples:
        if mentioned := mentioned_classes(sample.caption, patterns):
            classes_by_photo.setdefault(sample.image_id, set()).update(mentioned)
    return classes_by_photo


def _unpaired(
    samples: Sequence[Sample], photo_classes: set[str], *, number: int, lemmatizer: Lemmatizer
) -> list[Sample]:
    """Return samples of a photo whose caption only lists its classes; regions keep their labels."""
    unpaired = replace(
        samples[0],
        caption=", ".join(sorted(photo_classes)),
        regions=relabel_regions(samples, lemmatizer),
        phrases=(),
        origin=UNPAIRED,
        weight=0.0,
    )
    return [replace(unpaired, sample_id=f"{unpaired.image_id}#unpaired{k}") for k in range(number)]


WAITING = "a photo"  # words that every vocabulary has


@dataclass(frozen=True, kw_only=True)
class CaptionSlots(AbstractStep):
    """Step that adds samples without a caption to every photo, to be filled by CapFilt.

    They have origin `UNPAIRED` and weight 0, so they are not trained on until a policy has filled
    them; it removes slots that stay empty.

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
        """Return the roster with the empty samples appended."""
        del context
        return with_slots(roster, self.per_photo)


def with_slots(roster: Roster, per_photo: int) -> Roster:
    """Append ``per_photo`` empty samples per photo to a roster."""
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
