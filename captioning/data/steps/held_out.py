"""Classes held out of a training set: photos that show them keep no caption.

Held-out COCO (Hendricks et al., "Deep Compositional Captioning", CVPR 2016) leaves out every photo
of which a caption mentions one of eight objects. Bujimalla et al. go on to use these photos with
what is known to be in them, but without captions: *partially paired* data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from captioning.data.region_labels import regions_by_phrases
from captioning.data.roster import Dropped, Roster, build_roster
from captioning.ranges import NonNegativeInt
from captioning.text.lemmas import Lemmatizer
from captioning.text.word_forms import classes_named, form_patterns
from captioning.types import UNPAIRED, Sample


def hold_out(
    roster: Roster,
    *,
    classes: Mapping[str, Sequence[str]],
    lemmatizer: Lemmatizer,
    samples_per_photo: NonNegativeInt = 0,
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
        ValueError: a class without forms, a negative number, a class that no caption mentions, or
            classes that all photos show.
    """
    if samples_per_photo < 0:
        raise ValueError(f"samples_per_photo must be at least 0: got {samples_per_photo}")
    shown = classes_shown(roster, classes)
    if missing := sorted(classes.keys() - set().union(*shown.values(), ())):
        raise ValueError(
            f"{roster.name}: no caption mentions the held-out {', '.join(missing)}: check "
            "hold_out.classes, and that each has the forms that captions use"
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
