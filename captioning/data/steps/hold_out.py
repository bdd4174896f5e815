"""Classes held out of a training set: photos that show them keep no caption.

Held-out COCO (Hendricks et al., "Deep Compositional Captioning", CVPR 2016) leaves out every photo
of which a caption mentions one of eight objects. Bujimalla et al. go on to use these photos with
what is known to be in them, but without captions: *partially paired* data.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from captioning.data.region_labels import regions_by_phrases
from captioning.data.roster import Dropped, Roster, build_roster
from captioning.data.steps.base import AbstractStep, StepContext
from captioning.ranges import NonNegativeInt
from captioning.text.lemmas import Lemmatizer, load_lemmas
from captioning.text.object_words import LEMMAS
from captioning.text.word_forms import classes_named, form_patterns, forms_left
from captioning.types import UNPAIRED, Sample

log = logging.getLogger(__name__)

MOST_SHOWN = 10  # words in a warning


@dataclass(frozen=True, kw_only=True)
class HoldOut(AbstractStep):
    """Leaves out the captions of photos that show held-out classes, see `hold_out`.

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
        """The captions left; forms of the classes that they still have go into the context."""
        lemmatizer = load_lemmas(LEMMAS)
        left = hold_out(
            roster,
            classes=self.classes,
            lemmatizer=lemmatizer,
            samples_per_photo=self.samples_per_photo,
        )
        paired = [sample.caption for sample in left.samples if sample.origin != UNPAIRED]
        log.info(
            f"{roster.name}: held out, {len(left.dropped) - len(roster.dropped)} captions left "
            f"out, {len(left) - len(paired)} samples without caption"
        )
        context.held_out_left = forms_left(paired, self.classes, lemmatizer)
        _warn(roster.name, context.held_out_left)
        return left


def _warn(name: str, left: Mapping[str, int]) -> None:
    if left:
        words = ", ".join(f"{word} ({count})" for word, count in list(left.items())[:MOST_SHOWN])
        log.warning(
            f"{name}: captions to train on still have held-out words, by number: {words}; "
            "to hold them out too, add them to steps.hold_out.classes"
        )


def hold_out(
    roster: Roster,
    *,
    classes: Mapping[str, Sequence[str]],
    lemmatizer: Lemmatizer,
    samples_per_photo: int = 0,
) -> Roster:
    """A training set without the captions of photos that show held-out classes.

    A photo shows a class if one of its captions mentions one of the class's word forms as whole
    words, in any case. All its captions are left out.

    Args:
        roster: of training.
        classes: word forms by class, such as ``{"bus": ("bus", "buses")}``; phrases are allowed.
        lemmatizer: gives the singular, where regions are called as captions call them.
        samples_per_photo: samples that each left-out photo keeps, of origin `UNPAIRED` and weight
            0, for captions that are yet to be written (`curation.amend.pseudo_label`); 0 leaves
            the photos out.

    Returns:
        The captions left, then the unpaired samples; what was left out is in ``dropped``.

    Raises:
        ValueError: a class without forms, a class that no caption mentions, or
            classes that all photos show.
    """
    shown = classes_shown(roster, classes)
    if missing := sorted(classes.keys() - set().union(*shown.values(), ())):
        raise ValueError(
            f"{roster.name}: no caption mentions the held-out {', '.join(missing)}: check "
            "steps.hold_out.classes, and that each has the forms that captions use"
        )
    paired = [sample for sample in roster.samples if sample.image_id not in shown]
    if not paired:
        raise ValueError(f"{roster.name}: every photo shows a held-out class: hold out fewer")
    dropped = [
        Dropped(item=roster.samples[row].sample_id, rule=f"held out: {', '.join(sorted(found))}")
        for image_id, found in shown.items()
        for row in roster.rows_by_image[image_id]
    ]
    unpaired = [
        sample
        for image_id, found in shown.items()
        for sample in _unpaired(
            [roster.samples[row] for row in roster.rows_by_image[image_id]],
            found,
            number=samples_per_photo,
            lemmatizer=lemmatizer,
        )
    ]
    return build_roster(roster.name, [*paired, *unpaired], [*roster.dropped, *dropped])


def classes_shown(roster: Roster, classes: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    """Which of the classes each photo's captions mention; photos of none are not in it.

    Raises:
        ValueError: a class without forms.
    """
    patterns = form_patterns(classes)
    shown: dict[str, set[str]] = {}
    for sample in roster.samples:
        if found := classes_named(sample.caption, patterns):
            shown.setdefault(sample.image_id, set()).update(found)
    return shown


def _unpaired(
    samples: Sequence[Sample], found: set[str], *, number: int, lemmatizer: Lemmatizer
) -> list[Sample]:
    """Samples of a photo that say no more than what is in it, and what its regions show."""
    waiting = replace(
        samples[0],
        caption=", ".join(sorted(found)),
        regions=regions_by_phrases(samples, lemmatizer),
        phrases=(),
        origin=UNPAIRED,
        weight=0.0,
    )
    return [replace(waiting, sample_id=f"{waiting.image_id}#unpaired{k}") for k in range(number)]
