"""What is known of a roster's captions before the first new one, and a photo on its way to them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from augmentation.ssa.filters import CrossFittedScores, GivenScores
from augmentation.ssa.frames import Frames
from augmentation.ssa.graph import Graph
from augmentation.ssa.nouns import NounForms
from captioning.data.roster import Roster
from captioning.types import Sample


@dataclass(kw_only=True)
class PhotoGraphs:
    """Graphs of a photo's captions, lemmas of their nouns, and the number that do not parse.

    Those that lack a "not" tell of words alone.
    """

    graphs: list[Graph] = field(default_factory=list)
    lacking_not: list[Graph] = field(default_factory=list)
    nouns: set[str] = field(default_factory=set)
    unreadable: int = 0


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """What all captions of a roster tell about each."""

    roster: Roster
    graphs: dict[str, PhotoGraphs]
    nouns: NounForms
    frames: Frames
    scores: CrossFittedScores | GivenScores


@dataclass(frozen=True, kw_only=True)
class PhotoInWork:
    """A photo, and what becomes of its captions.

    Attributes:
        sample: its first one.
        graphs: of its captions.
        own_captions: by people, normalised.
        refused: numbers of new captions by reason.
    """

    sample: Sample
    graphs: PhotoGraphs
    own_captions: set[str]
    refused: Counter[str]
