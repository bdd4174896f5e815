"""What checks look at: captions, what was seen of each photo, and vectors of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from captioning.data.roster import Roster
from captioning.interfaces import TextEmbedder
from curation.base import WordDoubt
from curation.words import words_of

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhotoFacts:
    """What was seen of a photo when it was opened.

    Attributes:
        problem: why it cannot be used; empty for a good photo.
        size: width and height in pixels; zeros where it cannot be opened.
        contrast: standard deviation of grey values, in [0, 128].
        hash: see `curation.score.duplicate.difference_hash`.
    """

    problem: str = ""
    size: tuple[int, int] = (0, 0)
    contrast: float = 0.0
    hash: int = 0


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """N captions of P photos.

    Attributes:
        roster: the captions.
        photos: by path, in the order of first captions.
        photo_vectors: ``(P, D)`` of unit length, NaN for bad photos; None: not embedded.
        caption_vectors: ``(N, D)`` in the same space.
        sentence_vectors: ``(N, E)`` of unit length, to compare captions with each other; may be
            ``caption_vectors``.
        encoder: embeds further texts in that space; None: nothing does.
        space: name of the space; empty for none.
        seed: of all draws.
        progress: called by a check that takes long with the share that is done.
    """

    roster: Roster
    photos: Mapping[Path, PhotoFacts]
    photo_vectors: Floats | None = None
    caption_vectors: Floats | None = None
    sentence_vectors: Floats | None = None
    encoder: TextEmbedder | None = None
    space: str = ""
    seed: int = 0
    progress: Callable[[float], None] | None = None

    @cached_property
    def captions(self) -> list[str]:
        """Texts by row."""
        return [sample.caption for sample in self.roster.samples]

    @cached_property
    def words(self) -> list[list[str]]:
        """Words by row, in lower case."""
        return [words_of(caption) for caption in self.captions]

    @cached_property
    def photo_of(self) -> NDArray[np.int64]:
        """``(N,)`` place in ``photos`` of each caption's."""
        places = {path: place for place, path in enumerate(self.photos)}
        return np.array([places[sample.image_path] for sample in self.roster.samples])

    @cached_property
    def facts_of(self) -> list[PhotoFacts]:
        """What was seen of the photo, by row."""
        facts = list(self.photos.values())
        return [facts[place] for place in self.photo_of]

    @cached_property
    def groups(self) -> list[NDArray[np.int64]]:
        """Rows of each image."""
        return [np.array(rows) for rows in self.roster.rows_by_image.values()]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What a check measured.

    Attributes:
        values: ``(N,)``, NaN where it could not be measured.
        reasons: of single captions by row, for people.
        note: of the whole set, for people.
        words: that are judged, by row, the most likely wrong one first.
    """

    values: Floats
    reasons: Mapping[int, str] = field(default_factory=dict)
    note: str = ""
    words: Mapping[int, Sequence[WordDoubt]] = field(default_factory=dict)

    @classmethod
    def of(cls, count: int, found: Mapping[int, tuple[float, str]]) -> Scores:
        """0 for all captions but those found, which have a value and a reason."""
        values = np.zeros(count, dtype=np.float32)
        for row, (value, _) in found.items():
            values[row] = value
        return cls(values=values, reasons={row: reason for row, (_, reason) in found.items()})


def shortened(texts: Sequence[str], longest: int = 60) -> str:
    """Texts for a reason, at most so many characters of each, the first three."""
    return ", ".join(repr(t if len(t) <= longest else t[: longest - 1] + "…") for t in texts[:3])
