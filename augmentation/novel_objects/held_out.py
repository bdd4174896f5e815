"""Classes held out of a data set, as DCC (Hendricks et al., 2016) does with eight of COCO.

A photo is novel if one of its captions names a held-out class: its boxes are used, its captions are
not. All other photos are in-domain. Lists of words may lack forms ("buses" is not in DCC's), so
forms of held-out words that remain in in-domain captions are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from captioning.data.roster import Roster, build_roster
from captioning.text.lemmas import Lemmatizer
from captioning.text.word_forms import count_remaining_forms, form_patterns, mentioned_classes
from captioning.types import Region

Words = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NovelPhoto:
    """A photo whose captions are held out, so that only its boxes are used.

    Attributes:
        image_id: of the roster.
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
    """A roster split by the held-out classes.

    Attributes:
        in_domain: photos whose captions name no held-out class.
        novel: the others.
        leaks: forms of held-out words that still occur in in-domain captions, with the number of
            captions: forms that the list of words lacks.
    """

    in_domain: Roster
    novel: tuple[NovelPhoto, ...]
    leaks: dict[str, int]


def split_held_out(roster: Roster, words: Words, *, lemmatizer: Lemmatizer) -> HeldOut:
    """Split a roster by held-out classes.

    Args:
        roster: photos with boxes and captions.
        words: by class, the forms that make a caption name it, in any case: a word, or several
            words in a row.
        lemmatizer: finds forms that are missing.

    Raises:
        ValueError: a class without words, or no photo in-domain.
    """
    patterns = form_patterns(words)
    classes: dict[str, set[str]] = {}
    for sample in roster.samples:
        names = classes.setdefault(sample.image_id, set())
        names |= mentioned_classes(sample.caption, patterns)
    in_domain_samples = [sample for sample in roster.samples if not classes[sample.image_id]]
    if not in_domain_samples:
        raise ValueError(f"{roster.name}: every photo names one of {list(words)}; hold out fewer")
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
    """Words of a list, one a line as in DCC's ``transfer_words``; forms of a word are one class.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no words in it.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such list of held-out words, one a line")
    lines = Path(path).read_text(encoding="utf-8").lower().splitlines()
    forms: dict[str, list[str]] = {}
    for word in dict.fromkeys(line.strip() for line in lines if line.strip()):
        forms.setdefault(lemmatizer(word, "NNS"), []).append(word)
    if not forms:
        raise ValueError(f"{path}: holds no words; wanted one a line")
    return forms
