"""Where objects can be cut out and where they can be put in: CutSwap's image manipulation.

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

from augmentation.regions.boxes import (
    Box,
    Limits,
    area,
    clipped,
    common,
    iou,
    pixels,
    without_doubles,
)
from augmentation.regions.cutswap.manner import manner
from augmentation.regions.cutswap.objects import Labels, boxes_of
from augmentation.regions.mentions import Mention
from augmentation.regions.novel_captions import COLOURS
from augmentation.regions.rendering import NO_PHOTO, UNREADABLE
from captioning.ranges import Fraction, NonNegativeFloat
from captioning.text.object_words import COCO_OBJECTS
from captioning.types import Parse, Region, Sample
from captioning.vision.boxes import coverage
from captioning.vision.photos import photo_sizes

NO_AREA = "boxes outside the photo"
SHARED = "box of another thing too"
TOO_LITTLE = "too little of the photo would be replaced"
TOO_MUCH = "too much of the photo would be replaced"
FAR_LARGER = 2
MOST = 0.5
PEOPLE = COCO_OBJECTS[0].split(",")


@dataclass(frozen=True, slots=True, kw_only=True)
class Areas:
    """What of a photo may be replaced.

    Attributes:
        smallest, largest: share of the photo that all boxes of the object cover together.
        doubles: IoU above which two boxes of the object are one.
        behind: another thing that the caption names lies behind the object, and may be covered, if
            its box is twice as large as one of the object's boxes and holds so large a share of
            it; above 1 nothing may.
        clear: largest share of a box to be cut out that a person's box, or another of the same
            label, may cover from before it; 1 for any.
        overlaid: largest share of an object's box that a thing which the caption names and which
            lies mostly within it may cover (the shirt of a man); 1 for any.
        tell_groups: boxes of several things are told from those of one each, see `Patches`, and
            those that two phrases share are left alone; off: each box is taken.

    Raises:
        ValueError: shares that are not in order within [0, 1].
    """

    smallest: Fraction = 0.1
    largest: Fraction = 0.7
    doubles: Fraction = 0.7
    behind: NonNegativeFloat = 0.8
    clear: Fraction = 0.3
    overlaid: Fraction = 0.1
    tell_groups: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.smallest <= self.largest <= 1 or not 0 <= self.doubles <= 1:
            raise ValueError(
                f"areas must be 0 <= smallest <= largest <= 1 and doubles in [0, 1]: got {self}"
            )

    def targets(self, sample: Sample, numbers: Iterable[int]) -> tuple[Box, ...]:
        """Boxes of an object, doubles suppressed, in the order of ``sample.regions``."""
        regions = [sample.regions[n] for n in numbers]
        return tuple(region.box for region in without_doubles(regions, threshold=self.doubles))

    def problem(self, sample: Sample, numbers: Collection[int]) -> str:
        """Why the boxes of an object cannot be replaced; empty when they can."""
        phrases = sum(not set(numbers).isdisjoint(phrase.regions) for phrase in sample.phrases)
        if self.tell_groups and phrases > 1:
            return SHARED
        try:
            width, height = upright_size(sample.image_path)
        except FileNotFoundError:
            return NO_PHOTO
        except ValueError:
            return UNREADABLE
        replaced = []
        for box in self.targets(sample, numbers):
            seen = clipped(box, (width, height))
            if seen is None:
                return NO_AREA
            replaced.append(pixels(seen))
        share = coverage(replaced, width, height)
        if share < self.smallest:
            return TOO_LITTLE
        return TOO_MUCH if share > self.largest else ""

    def kept(
        self,
        sample: Sample,
        parse: Parse,
        own: Collection[int],
        mentions: Sequence[Mention],
        labels: Labels,
    ) -> tuple[Region, ...]:
        """Regions of what the caption names besides ``own`` and a patch must not cover."""
        others = {n for phrase in sample.phrases for n in phrase.regions}
        for mention in mentions:
            others.update(boxes_of(sample, mention, parse, labels))
        targets = self.targets(sample, own)
        regions = (sample.regions[n] for n in sorted(others.difference(own)))
        return tuple(region for region in regions if not self._is_behind(region.box, targets))

    def is_overlaid(self, targets: Sequence[Box], kept: Sequence[Region]) -> bool:
        """Whether much of an object would stay, as what lies on it is named too."""
        return any(
            common(region.box, target) > self.overlaid * area(target)
            and common(region.box, target) > MOST * area(region.box)
            for region in kept
            for target in targets
        )

    def is_clear(self, sample: Sample, number: int) -> bool:
        """Whether a region shows its thing alone: no fence behind a man who climbs it."""
        own = sample.regions[number]
        return not any(
            region.label in (*PEOPLE, own.label)
            and common(region.box, own.box) > self.clear * area(own.box)
            and not self._is_behind(region.box, (own.box,))
            for n, region in enumerate(sample.regions)
            if n != number and iou(region.box, own.box) <= self.doubles
        )

    def shows_group(self, plural: bool, boxes: Sequence[Box]) -> bool:
        """Whether boxes of a mentioned object show several; all of a plural where none are told."""
        return plural and (len(boxes) == 1 or not self.tell_groups)

    def _is_behind(self, box: Box, targets: Sequence[Box]) -> bool:
        return any(
            common(box, target) >= self.behind * area(target)
            and area(box) >= FAR_LARGER * area(target)
            for target in targets
        )


@lru_cache(maxsize=1024)
def upright_size(path: Path) -> tuple[int, int]:
    """Width and height of a photo turned as its EXIF says, see `photo_sizes`."""
    return photo_sizes(path)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A box to cut out.

    Attributes:
        image_id: of its photo.
        image_path: that photo.
        box: in its pixels.
    """

    image_id: str
    image_path: Path
    box: Box


# Class, whether a box shows several, attribute or "".
_Key = tuple[str, bool, str]


class Patches:
    """What can be cut out of a data set's photos, by object and attribute.

    A box of "two dogs" shows one if each has its own, and a group if they share one; boxes of a
    singular count where there is one alone, as else nobody knows which is meant.

    Args:
        limits: which box may replace which.
        areas: tell doubles and groups.
    """

    def __init__(self, *, limits: Limits, areas: Areas) -> None:
        self._limits, self._areas = limits, areas
        self._found: dict[_Key, dict[tuple[str, Box], tuple[Path, set[str]]]] = defaultdict(dict)
        self._sorted: dict[_Key, tuple[list[tuple[str, Box]], np.ndarray]] = {}

    def __len__(self) -> int:
        """Number of boxes, those of several names counted by each."""
        return sum(
            len(patches) for (_, _, attribute), patches in self._found.items() if not attribute
        )

    def add(self, sample: Sample, parse: Parse, mention: Mention, numbers: Sequence[int]) -> None:
        """Note the boxes of a mentioned object at positions of ``sample.regions``."""
        boxes = self._areas.targets(sample, numbers)
        if self._areas.tell_groups and not mention.plural and len(boxes) != 1:
            return
        group, manner_words = self._areas.shows_group(mention.plural, boxes), manner(parse, mention)
        clear = {sample.regions[n].box for n in numbers if self._areas.is_clear(sample, n)}
        for box in boxes:
            if self._limits.box_problem(box) or not (group or box in clear):
                continue
            for attribute in ("", *_telling(mention.attributes)):
                key = (mention.name, group, attribute)
                path_and_manner = (sample.image_path, set[str]())
                entry = self._found[key].setdefault((sample.image_id, box), path_and_manner)
                entry[1].update(manner_words)

    def choose(
        self,
        name: str,
        attribute: str,
        targets: Sequence[Box],
        *,
        plural: bool,
        manner_words: Collection[str],
        image_id: str,
        num: int,
        generator: np.random.Generator,
    ) -> Iterator[Patch]:
        """Patches drawn at random among those that may replace all targets.

        Args:
            name: class of the object, in the singular.
            attribute: that it must have, ``""`` for any.
            targets: boxes to be replaced.
            plural: whether the caption speaks of several.
            manner_words: captions of the patch's photo must say all this of it (`manner`).
            image_id: of the photo pasted onto, which gives none itself.
            num: at most so many.
            generator: of the draw.
        """
        key = (name, self._areas.shows_group(plural, targets), attribute)
        if key not in self._found:
            return
        if key not in self._sorted:
            entries = sorted(self._found[key])
            self._sorted[key] = entries, np.array([box for _, box in entries])
        entries, boxes = self._sorted[key]
        fits = np.flatnonzero(self._limits.allowed(boxes, targets).all(axis=0))
        drawn = (entries[n] for n in generator.permutation(fits))
        patches = self._found[key]
        fitting = (
            entry
            for entry in drawn
            if entry[0] != image_id and patches[entry][1].issuperset(manner_words)
        )
        for found_id, box in islice(fitting, num):
            yield Patch(image_id=found_id, image_path=patches[found_id, box][0], box=box)


def _telling(attributes: Sequence[str]) -> list[str]:
    """Attributes without colours where there are several: a black and white dog is no white one."""
    several = sum(attribute in COLOURS for attribute in attributes) > 1
    return [word for word in attributes if not (several and word in COLOURS)]
