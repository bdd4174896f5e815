"""Settings of novel classes and of the pictures made for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from augmentation.novel_objects.novel_captions import Name
from captioning.config.ranges import Fraction, PositiveInt
from captioning.text.inflection import pluralise


class KnownName(TypedDict, total=False):
    """How captions call a known object, where the regular forms are wrong."""

    plural: str | None
    forms: Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NovelClass:
    """A class that captions of the data do not name.

    Attributes:
        name: what captions call one object of it.
        plural: for several; None for the regular form.
        words: that make a caption name it; empty for name and plural.
        labels: of its boxes; empty for the name.
        candidates: labels of objects that it may replace; None: counted in a baseline's captions.
        likely: these where there are no captions to count in.

    Raises:
        ValueError: text where a list of texts belongs.
    """

    name: str
    plural: str | None = None
    words: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    candidates: tuple[str, ...] | None = None
    likely: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key in ("words", "labels", "candidates", "likely"):
            value = getattr(self, key)
            if isinstance(value, str):  # it would be taken for a list of its letters
                raise ValueError(
                    f"{key} of the novel class {self.name!r} must be a list, as in "
                    f"{{{key}: [{value}]}}: got {value!r}"
                )

    @property
    def names(self) -> Name:
        """How captions call it."""
        plural = self.plural or pluralise(self.name)
        return Name(singular=self.name, plural=plural, forms=tuple(self.words))

    @property
    def forms(self) -> tuple[str, ...]:
        """Words that hold a photo out."""
        return tuple(self.words) or (self.name, self.names.plural)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Settings that the paper fixes, and those that it leaves open.

    Attributes:
        num_pictures: K, of each novel class at most; each of its m candidates gets K/m, rounded
            down. Where m is more than K, the first K candidates get one each.
        num_candidates: m, where candidates are counted.
        not_counted: labels that are no candidates where these are counted.
        pictures_per_photo: most pictures of a photo with each candidate, no two with patches of the
            same photo; None: as many as K/m takes.
        allow_several: replace several objects of a photo at once; False: skip such photos.
        min_replaced: smallest share of the candidate's boxes in a photo that must be replaced; the
            paper requires one box or more (0).
        match_counts: leave out captions that speak of more objects than are replaced; the paper
            keeps them.
        keep_mentioned: do not cover other objects that the captions name, as CutSwap does.
        duplicate_iou: IoU above which two boxes of one label are one object.
        skip_containers: do not replace boxes that contain other boxes.

    Raises:
        ValueError: a number below 1, or a share outside [0, 1].
    """

    num_pictures: PositiveInt = 2400
    num_candidates: PositiveInt = 3
    not_counted: Sequence[str] = ()
    pictures_per_photo: PositiveInt | None = 1
    allow_several: bool = True
    min_replaced: Fraction = 0.0
    match_counts: bool = True
    keep_mentioned: bool = False
    duplicate_iou: Fraction = 0.9
    skip_containers: bool = True

    def __post_init__(self) -> None:
        if min(self.num_pictures, self.num_candidates) < 1:
            raise ValueError(f"num_pictures and num_candidates must be at least 1: got {self}")
        if isinstance(self.not_counted, str):  # it would be taken for a list of its letters
            raise ValueError(
                f"method.choices.not_counted must be a list, as in [{self.not_counted}]: got "
                f"{self.not_counted!r}"
            )
        if self.pictures_per_photo is not None and self.pictures_per_photo < 1:
            raise ValueError(
                "method.choices.pictures_per_photo must be at least 1, or null for as many as it "
                f"takes: got {self.pictures_per_photo!r}"
            )
        if not (0 <= self.min_replaced <= 1 and 0 <= self.duplicate_iou <= 1):
            raise ValueError(f"min_replaced and duplicate_iou must be in [0, 1]: got {self}")
