"""Settings of novel classes and of the images made for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from augmentation.novel_objects.novel_captions import Name
from captioning.config.ranges import Fraction, PositiveInt
from captioning.data.roster import Roster, build_roster
from captioning.text.inflection import pluralise
from captioning.text.lemmas import Lemmatizer
from captioning.text.word_forms import count_remaining_forms, form_patterns, mentioned_classes
from captioning.types import Region

# Classes held out of a dataset, as DCC (Hendricks et al., 2016) does with eight of COCO.
#
# A photo is novel if one of its captions names a held-out class: its boxes are used, its captions
# are not. All other photos are in-domain. Lists of words may lack forms ("buses" is not in DCC's),
# so forms of held-out words that remain in in-domain captions are counted.
Words = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NovelPhoto:
    """A photo with held-out captions, of which only the boxes are used.

    Attributes:
        image_id: the roster's id.
        image_path: the file.
        regions: its boxes.
        classes: held-out classes that its captions name.
    """

    image_id: str
    image_path: Path
    regions: tuple[Region, ...]
    classes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """A roster divided by the held-out classes.

    Attributes:
        in_domain: photos whose captions name no held-out class.
        novel: photos that mention a held-out class.
        leaks: forms of held-out words that still occur in in-domain captions, with the number of
            captions: forms that the list of words lacks.
    """

    in_domain: Roster
    novel: tuple[NovelPhoto, ...]
    leaks: dict[str, int]


def split_held_out(roster: Roster, words: Words, *, lemmatizer: Lemmatizer) -> HeldOut:
    """Divide a roster into known samples and photos of held-out classes.

    Args:
        roster: photos with boxes and captions.
        words: by class, the forms by which a caption names it, in any letter case: a word, or
            several words in a row.
        lemmatizer: finds forms that are missing.

    Raises:
        ValueError: a class has no words, or every photo is held out.
    """
    patterns = form_patterns(words)
    classes: dict[str, set[str]] = {}
    for sample in roster.samples:
        names = classes.setdefault(sample.image_id, set())
        names |= mentioned_classes(sample.caption, patterns)
    in_domain_samples = [sample for sample in roster.samples if not classes[sample.image_id]]
    if not in_domain_samples:
        raise ValueError(
            f"{roster.name}: every photo mentions one of {list(words)}; hold out fewer"
        )
    first = {sample.image_id: sample for sample in reversed(roster.samples)}
    novel = tuple(
        NovelPhoto(
            image_id=image_id,
            image_path=first[image_id].image_path,
            regions=first[image_id].regions,
            classes=tuple(name for name in words if name in names),
        )
        for image_id, names in classes.items()
        if names
    )
    in_domain = build_roster(f"{roster.name} in-domain", in_domain_samples, roster.dropped)
    leaks = count_remaining_forms(
        (sample.caption for sample in in_domain_samples), words, lemmatizer
    )
    return HeldOut(in_domain=in_domain, novel=novel, leaks=leaks)


def read_words(path: str | Path, *, lemmatizer: Lemmatizer) -> dict[str, list[str]]:
    """Read one word per line as in DCC's ``transfer_words``; word forms join one class.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file holds no words.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} does not exist: name a file of held-out words")
    lines = Path(path).read_text(encoding="utf-8").lower().splitlines()
    forms: dict[str, list[str]] = {}
    for word in dict.fromkeys(line.strip() for line in lines if line.strip()):
        forms.setdefault(lemmatizer(word, "NNS"), []).append(word)
    if not forms:
        raise ValueError(f"{path} holds no words; write one word on each line")
    return forms


class KnownName(TypedDict, total=False):
    """Names that captions use for a known object, for irregular forms."""

    plural: str | None
    forms: Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NovelClass:
    """A class that no caption of the dataset mentions.

    Attributes:
        name: name of one object in captions.
        plural: name of several; None: the regular form.
        words: words by which a caption names it; empty: name and plural.
        labels: labels of its boxes; empty for the name.
        candidates: labels of objects that it may replace; None: counted in a baseline's captions.
        likely: these where there are no captions to count in.

    Raises:
        ValueError: a setting is a text and not a list of texts.
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
        """Names that captions use for the class."""
        plural = self.plural or pluralise(self.name)
        return Name(singular=self.name, plural=plural, forms=tuple(self.words))

    @property
    def forms(self) -> tuple[str, ...]:
        """Words whose mention in a caption holds the photo out."""
        return tuple(self.words) or (self.name, self.names.plural)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Settings that the paper fixes, and settings that the paper leaves open.

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
        ValueError: a number is below 1, or a share is outside [0, 1].
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
                "method.choices.pictures_per_photo must be at least 1, or null for no limit: got "
                f"{self.pictures_per_photo!r}"
            )
        if not (0 <= self.min_replaced <= 1 and 0 <= self.duplicate_iou <= 1):
            raise ValueError(f"min_replaced and duplicate_iou must be in [0, 1]: got {self}")
