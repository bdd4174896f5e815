"""Constraints from words of the reference captions: an oracle detector for constrained search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from captioning.config.ranges import PositiveInt
from captioning.data.roster import build_roster
from captioning.data.steps.hold_out import classes_shown
from captioning.decoding.image_constraints import ImageConstraints
from captioning.types import Sample


def classes_of_references(
    samples: Iterable[Sample],
    *,
    classes: Mapping[str, Sequence[str]],
    required: PositiveInt = 2,
    max_constraints: PositiveInt = 3,
) -> ImageConstraints:
    """Constraints from the classes that an image's own reference captions name.

    A captioner that receives these words names almost all of them: such scores are an upper bound,
    not a measure of what it recognises.

    Args:
        samples: samples of the data set, with their captions.
        classes: word forms by class.
        required: see `ImageConstraints`.
        max_constraints: maximum number of constraints per image, in the order of ``classes``.

    Raises:
        ValueError: there are no classes, a class has no forms, or no caption names a class.
    """
    shown = classes_shown(build_roster("references", list(samples)), classes)
    if not shown:
        raise ValueError(
            f"constraints=references: no reference names one of {', '.join(classes) or 'none'}; "
            "give the classes of this data set by constraints.classes"
        )
    words = {
        image_id: [tuple(forms) for name, forms in classes.items() if name in names]
        for image_id, names in shown.items()
    }
    return ImageConstraints(
        words={image_id: entries[:max_constraints] for image_id, entries in words.items()},
        required=required,
    )
