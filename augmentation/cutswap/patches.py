"""CutSwap's image manipulation: find patches to cut out and boxes to paste them into.

Section 3.2.3 of the thesis (Hahn, 2022): the boxes of an object in its photo, doubles suppressed,
and patches with another object whose size in pixels and aspect are alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np

from augmentation.cutswap.descriptions import description_words
from augmentation.cutswap.objects import boxes_of, shares_boxes
from augmentation.regions.boxes import (
    Limits,
    area,
    clipped,
    intersection_area,
    iou,
    pixels,
    without_duplicates,
)
from augmentation.regions.closed_classes import COLOURS
from augmentation.regions.mentions import Mention
from augmentation.regions.rendering import NO_PHOTO, UNREADABLE
from captioning.config.ranges import Fraction, NonNegativeFloat
from captioning.text.object_words import COCO_OBJECTS, Labels
from captioning.types import Box, Parse, Region, Sample
from captioning.vision.photos import photo_sizes
from captioning.vision.region_features import coverage

NO_AREA = "boxes outside the photo"
SHARED = "box of another thing too"
TOO_LITTLE = "too little of the photo would be replaced"
TOO_MUCH = "too much of the photo would be replaced"
FAR_LARGER = 2
MOSTLY_WITHIN = 0.5
PEOPLE = COCO_OBJECTS[0].split(",")


@dataclass(frozen=True, slots=True, kw_only=True)
class Areas:
    """Replaceable objects of a photo.

    Attributes:
        smallest, largest: share of the photo that all boxes of the object cover together.
        duplicate_iou: IoU above which two boxes of the object are one.
        behind_share: share of an object's box. Another object that the caption names counts as
            background, and may be covered, if its box holds at least this share of the object's
            box and is twice as large. Above 1 nothing may be covered.
        max_occluded: largest share of a box to be cut out that the box of a person, or of another
            object of the same label, may cover from the front; 1 for any.
        max_overlaid: largest share of an object's box that another named object may cover which
            lies mostly within it (the shirt of a man); 1 for any.
        one_colour: a patch of a thing of several colours is none of a thing of one of them; False:
            each attribute of a caption is one of the patch, as in the thesis.
        separate_groups: boxes of several objects are kept apart from boxes of single ones, see
            `Patches`, and boxes that two phrases, or two words by one label, share are not
            replaced; False: each box is taken.

    Raises:
        ValueError: shares that are not in order within [0, 1].
    """

    smallest: Fraction = 0.1
    largest: Fraction = 0.7
    duplicate_iou: Fraction = 0.7
    behind_share: NonNegativeFloat = 0.8
    max_occluded: Fraction = 0.3
    max_overlaid: Fraction = 0.1
    separate_groups: bool = True
    one_colour: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.smallest <= self.largest <= 1 or not 0 <= self.duplicate_iou <= 1:
            raise ValueError(
                f"required: 0 <= smallest <= largest <= 1 and duplicate_iou in [0, 1]: got {self}"
            )

    def targets(self, sample: Sample, numbers: Iterable[int]) -> tuple[Box, ...]:
        """Boxes of an object without near-duplicates, in the order of ``sample.regions``.

        Detectors label one box twice, such as man and men, so labels do not matter here.
        """
        regions = [sample.regions[n] for n in numbers]
        kept = without_duplicates(regions, threshold=self.duplicate_iou, one_object=True)
        return tuple(region.box for region in kept)

    def is_shared(
        self,
        sample: Sample,
        parse: Parse,
        mention: Mention,
        mentions: Sequence[Mention],
        labels: Labels,
    ) -> bool:
        """Return whether replacing an object by its label would cover another mentioned object.

        Words that one label shows only as words of one class, such as a man and a woman labelled
        person, always share its boxes (`shares_boxes`).
        """
        same_label = self.separate_groups
        return shares_boxes(sample, parse, mention, mentions, labels, same_label=same_label)

    def problem(self, sample: Sample, numbers: Collection[int]) -> str:
        """Reason why the boxes of an object cannot be replaced; empty if they can."""
        phrases = sum(not set(numbers).isdisjoint(phrase.regions) for phrase in sample.phrases)
        if self.separate_groups and phrases > 1:
            return SHARED
        try:
            width, height = upright_size(sample.image_path)
        except FileNotFoundError:
            return NO_PHOTO
        except ValueError:
            return UNREADABLE
        replaced = []
        for box in self.targets(sample, numbers):
            visible = clipped(box, (width, height))
            if visible is None:
                return NO_AREA
            replaced.append(pixels(visible))
        share = coverage(replaced, width, height)
        if share < self.smallest:
            return TOO_LITTLE
        return TOO_MUCH if share > self.largest else ""

    def protected(
        self,
        sample: Sample,
        parse: Parse,
        object_numbers: Collection[int],
        mentions: Sequence[Mention],
        labels: Labels,
    ) -> tuple[Region, ...]:
        """Regions of other mentioned objects, which no patch may cover."""
        named_numbers = {n for phrase in sample.phrases for n in phrase.regions}
        for mention in mentions:
            named_numbers.update(boxes_of(sample, mention, parse, labels))
        targets = self.targets(sample, object_numbers)
        regions = (sample.regions[n] for n in sorted(named_numbers.difference(object_numbers)))
        return tuple(region for region in regions if not self._is_behind(region.box, targets))

    def is_overlaid(self, targets: Sequence[Box], protected: Sequence[Region]) -> bool:
        """Return whether much of an object would remain because a mentioned object covers it."""
        return any(
            intersection_area(region.box, target) > self.max_overlaid * area(target)
            and intersection_area(region.box, target) > MOSTLY_WITHIN * area(region.box)
            for region in protected
            for target in targets
        )

    def is_clear(self, sample: Sample, number: int) -> bool:
        """Return whether a region shows only its object, without another object in front."""
        shown = sample.regions[number]
        return not any(
            region.label in (*PEOPLE, shown.label)
            and intersection_area(region.box, shown.box) > self.max_occluded * area(shown.box)
            and not self._is_behind(region.box, (shown.box,))
            for n, region in enumerate(sample.regions)
            if n != number and iou(region.box, shown.box) <= self.duplicate_iou
        )

    def shows_group(self, plural: bool, boxes: Sequence[Box]) -> bool:
        """Return whether boxes show several objects; true for plurals without group boxes."""
        return plural and (len(boxes) == 1 or not self.separate_groups)

    def _is_behind(self, box: Box, targets: Sequence[Box]) -> bool:
        return any(
            intersection_area(box, target) >= self.behind_share * area(target)
            and area(box) >= FAR_LARGER * area(target)
            for target in targets
        )


@lru_cache(maxsize=1024)
def upright_size(path: Path) -> tuple[int, int]:
    """Width and height of a photo after its EXIF rotation, see `photo_sizes`."""
    return photo_sizes(path)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A box of a photo that CutSwap cuts out as a patch.

    Attributes:
        image_id: its photo's id.
        image_path: path of that photo.
        box: box in its pixels.
    """

    image_id: str
    image_path: Path
    box: Box


# Class, whether a box shows several, attribute or "".
_Key = tuple[str, bool, str]


class Patches:
    """Patches of a dataset's photos, by object and attribute.

    A box of "two dogs" shows one if each has its own, and a group if they share one. A singular
    counts only where it has a single box: with several, the meant one is not known.

    Args:
        limits: limits on the boxes that may replace each other.
        areas: settings for duplicates and groups.
    """

    def __init__(self, *, limits: Limits, areas: Areas) -> None:
        self._limits, self._areas = limits, areas
        self._patches: dict[_Key, dict[tuple[str, Box], tuple[Path, set[str]]]] = defaultdict(dict)
        self._sorted: dict[_Key, tuple[list[tuple[str, Box]], np.ndarray]] = {}

    def __len__(self) -> int:
        """Number of boxes; a box with several names counts once for each name."""
        return sum(
            len(patches) for (_, _, attribute), patches in self._patches.items() if not attribute
        )

    def add(self, sample: Sample, parse: Parse, mention: Mention, numbers: Sequence[int]) -> None:
        """Add the boxes of a mentioned object, given positions in ``sample.regions``."""
        boxes = self._areas.targets(sample, numbers)
        if self._areas.separate_groups and not mention.plural and len(boxes) != 1:
            return
        is_group, descriptions = (
            self._areas.shows_group(mention.plural, boxes),
            description_words(parse, mention),
        )
        clear_boxes = {sample.regions[n].box for n in numbers if self._areas.is_clear(sample, n)}
        for box in boxes:
            if self._limits.box_problem(box) or not (is_group or box in clear_boxes):
                continue
            for attribute in ("", *self._attributes(mention)):
                key = (mention.name, is_group, attribute)
                path_and_descriptions = (sample.image_path, set[str]())
                entry = self._patches[key].setdefault((sample.image_id, box), path_and_descriptions)
                entry[1].update(descriptions)

    def _attributes(self, mention: Mention) -> Sequence[str]:
        one_colour = self._areas.one_colour
        return _distinctive(mention.attributes) if one_colour else mention.attributes

    def choose(
        self,
        name: str,
        attribute: str,
        targets: Sequence[Box],
        *,
        plural: bool,
        descriptions: Collection[str],
        image_id: str,
        num: int,
        generator: np.random.Generator,
    ) -> Iterator[Patch]:
        """Draw random patches that can replace all targets.

        Args:
            name: class of the object, in the singular.
            attribute: required attribute, ``""`` for any.
            targets: boxes to be replaced.
            plural: whether the caption speaks of several.
        descriptions: words with which its photo's captions must describe it (`description_words`).
            image_id: id of the photo pasted onto, whose own patches are excluded. num: at most so
            many. generator: generator of the draw.
        """
        key = (name, self._areas.shows_group(plural, targets), attribute)
        if key not in self._patches:
            return
        if key not in self._sorted:
            entries = sorted(self._patches[key])
            self._sorted[key] = entries, np.array([box for _, box in entries])
        entries, boxes = self._sorted[key]
        fitting = np.flatnonzero(self._limits.allowed(boxes, targets).all(axis=0))
        shuffled = (entries[n] for n in generator.permutation(fitting))
        patches = self._patches[key]
        fitting = (
            entry
            for entry in shuffled
            if entry[0] != image_id and patches[entry][1].issuperset(descriptions)
        )
        for patch_image_id, box in islice(fitting, num):
            yield Patch(
                image_id=patch_image_id, image_path=patches[patch_image_id, box][0], box=box
            )


def _distinctive(attributes: Sequence[str]) -> list[str]:
    """Attributes without colours if there are several: a black and white dog is not white."""
    has_several_colours = sum(attribute in COLOURS for attribute in attributes) > 1
    return [word for word in attributes if not (has_several_colours and word in COLOURS)]
