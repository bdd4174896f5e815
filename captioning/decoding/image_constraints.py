"""Constraints in words for each image, from a file, held-out classes or detections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from captioning.config.ranges import ArgumentsOf, PositiveInt
from captioning.decoding.constraints import TokenConstraints, Words, constrain
from captioning.decoding.detections import detection_constraints
from captioning.decoding.machine import Machine
from captioning.interfaces import AbstractTokenizer
from captioning.runtime.files import read_json
from captioning.types import UNPAIRED, Sample

_REMEDY = (
    "evaluate.py holds no classes out: set words with constraints=words constraints.path=FILE, "
    "or labelled boxes with constraints=detections"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConstraints:
    """Word constraints of each image, and how many a caption must meet.

    Attributes:
        words: constraints by image id, each a tuple of alternatives; other images have none.
        required: constraints that a caption must meet; all if the image has fewer.
    """

    words: Mapping[str, Sequence[Words]]
    required: int = 2

    def of_image(self, image_id: str, tokenizer: AbstractTokenizer) -> TokenConstraints:
        """Build an image's constraints over tokens.

        Raises:
            ValueError: too many constraints for a machine; the message names the image.
        """
        try:
            return constrain(
                self.words.get(image_id, ()),
                tokenizer.spellings,
                required=self.required,
                continues=tokenizer.continuing(),
                begin_id=tokenizer.begin_id,
            )
        except ValueError as error:
            raise ValueError(f"image {image_id}: {error}") from error

    def machines(self, image_ids: Sequence[str], tokenizer: AbstractTokenizer) -> list[Machine]:
        """Build one machine per image, for `ConstrainedBeamSearch`."""
        return [self.of_image(image_id, tokenizer).machine for image_id in image_ids]

    def missing(self, tokenizer: AbstractTokenizer) -> list[Words]:
        """Return distinct constraints without any word in the vocabulary; searches ignore them."""
        dropped = (words for i in self.words for words in self.of_image(i, tokenizer).dropped)
        return sorted(set(dropped))


def constraints_from_file(
    samples: Iterable[Sample], *, path: str | Path, required: PositiveInt = 2
) -> ImageConstraints:
    """Read constraints from a JSON file: ``{"IMAGE_ID": ["dog", ["cat", "cats"]], ...}``.

    Each entry of an image's list is a constraint: a word or phrase, or a list of alternatives.

    Args:
        samples: samples of the dataset; entries of other images are ignored.
        path: path of the JSON file.
        required: see `ImageConstraints`.

    Raises:
        ValueError: the file has another format, or no image of the dataset.
    """
    entries = read_json(path)
    if not isinstance(entries, dict):
        raise ValueError(f"{path}: must be an object of image ids: got {type(entries).__name__}")
    words = {image_id: _constraints(entry, path, image_id) for image_id, entry in entries.items()}
    known_ids = {sample.image_id for sample in samples}
    used = {image_id: entry for image_id, entry in words.items() if image_id in known_ids}
    if not used:
        raise ValueError(
            f"{path}: none of its {len(words)} images is in the dataset: the file has ids such as "
            f"{next(iter(words), None)!r}, the dataset {min(known_ids, default=None)!r}"
        )
    return ImageConstraints(words=used, required=required)


def _constraints(entry: Any, path: str | Path, image_id: str) -> list[Words]:
    constraints = [[item] if isinstance(item, str) else item for item in _list(entry)]
    if not all(
        _list(words) and all(isinstance(w, str) and w for w in words) for words in constraints
    ):
        raise ValueError(
            f"{path}: {image_id!r} must have a list of words or of lists of words: got {entry!r}"
        )
    if not isinstance(entry, list):
        raise ValueError(f"{path}: {image_id!r} must have a list of constraints: got {entry!r}")
    return [tuple(words) for words in constraints]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def constraints_from_classes(
    samples: Iterable[Sample],
    *,
    classes: Mapping[str, Sequence[str]] | None,
    required: PositiveInt = 1,
) -> ImageConstraints:
    """Derive constraints from the held-out classes of photos without captions.

    The caption of such a photo lists its classes; see `captioning.data.steps.hold_out`.

    Args:
        samples: photos without captions have the origin `UNPAIRED`; others give no constraints.
        classes: word forms by class.
        required: see `ImageConstraints`.

    Raises:
        ValueError: no classes, or no sample of origin `UNPAIRED`.
    """
    if not classes:
        raise ValueError(
            "constraints=held_out needs classes, but this config holds no classes out; choose "
            f"steps=[hold_out_NAME] in training. {_REMEDY}"
        )
    words: dict[str, list[Words]] = {}
    samples = list(samples)
    for sample in (sample for sample in samples if sample.origin == UNPAIRED):
        class_names = [name for name in sample.caption.split(", ") if name in classes]
        words[sample.image_id] = [tuple(classes[name]) for name in class_names]
    if samples and not words:
        raise ValueError(
            f"constraints=held_out needs photos whose captions were held out, but none of the "
            f"{len(samples)} samples has origin {UNPAIRED!r}; in training set "
            "steps.hold_out.samples_per_photo. "
            f"{_REMEDY}"
        )
    return ImageConstraints(words=words, required=required)


def constraints_from_regions(
    samples: Iterable[Sample],
    *,
    required: PositiveInt = 2,
    **settings: Annotated[Any, ArgumentsOf(detection_constraints)],
) -> ImageConstraints:
    """Derive constraints from the labelled regions of each image.

    Args:
        samples: samples of the dataset, with their regions.
        required: see `ImageConstraints`.
        **settings: see `captioning.decoding.detections.detection_constraints`.

    Raises:
        ValueError: no image has a region, or a setting is out of range.
    """
    regions = {sample.image_id: sample.regions for sample in samples}
    if not any(regions.values()):
        raise ValueError(
            "constraints=detections needs a dataset with labelled regions, but this one has none; "
            "set boxes with detections=[FILE] (captioning find-objects), or words with "
            "constraints=words constraints.path=FILE"
        )
    words = {
        i: detection_constraints(image_regions, **settings) for i, image_regions in regions.items()
    }
    return ImageConstraints(words=words, required=required)
