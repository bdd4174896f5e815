"""Captions whose one wrong word gives way to the word that fits: edits for the cleaned set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from captioning.data.roster import Roster
from captioning.text.word_rows import replace_word
from captioning.types import Edit
from curation.amend.replace_word import origin_of
from curation.base import WordDoubt
from curation.check.evidence import Scores
from curation.check.words import NAME

MEND_FROM = 0.9


class Flagged(Protocol):
    """What mending reads of a `curation.check.result.CheckResult`."""

    @property
    def roster(self) -> Roster:
        """The captions."""
        ...

    @property
    def scores(self) -> Mapping[str, Scores]:
        """By check."""
        ...

    @property
    def thresholds(self) -> Mapping[str, float]:
        """By check."""
        ...

    @property
    def flags(self) -> Mapping[str, NDArray[np.bool_]]:
        """``(N,)`` by check."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A caption with one word replaced.

    Attributes:
        doubt: about the word.
        caption: the new one.
    """

    doubt: WordDoubt
    caption: str

    def edit(self, sample_id: str, *, policy: str) -> Edit:
        """The edit for a journal."""
        doubt = self.doubt
        return Edit(
            sample_id=sample_id,
            action="replace_caption",
            value=self.caption,
            origin=origin_of(doubt),
            reason=f"{doubt.word!r} is wrong with probability {doubt.probability:.2f}",
            policy=policy,
            epoch=-1,
        )


def replacement(caption: str, doubt: WordDoubt) -> Replacement:
    """The caption with a doubted word replaced."""
    text = replace_word(caption, doubt.start, doubt.word, doubt.alternative)
    return Replacement(doubt=doubt, caption=text)


def flagged_elsewhere(result: Flagged) -> NDArray[np.bool_]:
    """``(N,)``: captions that another check than that of words flags."""
    others = [flags for name, flags in result.flags.items() if name != NAME]
    return np.any([*others, np.zeros(len(result.roster), bool)], axis=0)


def mendable(result: Flagged, *, threshold: float = MEND_FROM) -> dict[int, Replacement]:
    """By row the captions in which one word is surely wrong, and nothing else is flagged.

    Args:
        result: of a check.
        threshold: least probability of being wrong at which a word is replaced, in [0, 1].

    Raises:
        ValueError: words were not judged, or a threshold outside [0, 1].
    """
    if not 0 <= threshold <= 1:
        raise ValueError(f"words are replaced from a probability in [0, 1]: got {threshold}")
    scores = result.scores.get(NAME)
    if scores is None or not scores.words:
        why = "that check was left out" if scores is None else scores.note
        raise ValueError(f"wrong words cannot be mended: {why}")
    replaced = {}
    for row in np.flatnonzero(result.flags[NAME] & ~flagged_elsewhere(result)).tolist():
        surest, *further = scores.words[row]
        is_only_one = all(doubt.probability < result.thresholds[NAME] for doubt in further)
        if surest.probability >= threshold and is_only_one:
            replaced[row] = replacement(result.roster.samples[row].caption, surest)
    return replaced
