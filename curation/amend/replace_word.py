"""Replace a wrong word of a caption by the word that fits the photo."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from captioning.config.ranges import Fraction
from captioning.text.word_rows import replace_word
from captioning.types import Edit
from curation.base import (
    LEFT_ALONE,
    AbstractWordAmender,
    AbstractWordScore,
    Amended,
    Context,
    Selected,
    WordDoubt,
    require_fraction,
)

ORIGIN = "word:"
"""Prefix of a mended caption's origin ``word:START:OLD>NEW``; START is in the old caption."""


_ORIGIN = re.compile(r"word:(?P<start>[0-9]{1,9}):(?P<old>[^>]+)>(?P<new>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedWord:
    """Old and new word of a repaired caption, as stored in the caption's origin.

    Attributes:
        start: index of the old word's first character in the old caption.
        old, new: the words; in the new caption an article before them may have changed, too.
    """

    start: int
    old: str
    new: str


def origin_of(doubt: WordDoubt) -> str:
    """Build the origin of a caption whose doubted word was replaced; read by `parse_origin`."""
    return f"{ORIGIN}{doubt.start}:{doubt.word}>{doubt.alternative}"


def parse_origin(origin: str) -> ReplacedWord | None:
    """Parse the replaced word from an origin; None for origins of another kind."""
    match = _ORIGIN.fullmatch(origin)
    if match is None:
        return None
    return ReplacedWord(start=int(match["start"]), old=match["old"], new=match["new"])


class ReplaceWord(AbstractWordAmender):
    """Replaces the most doubtful word of each selected caption by its alternative.

    The rest of the caption stays, but for an article before the word. One word changes at a time: a
    caption that is selected again after that may have another one changed.

    Args:
        score: names the doubtful words; None: the selector's score.
        threshold: least probability of being wrong at which a word is replaced, in [0, 1].
        factor: multiplies the weight of selected captions without such a word, in [0, 1]; 1
            does not change them.

    Raises:
        ValueError: ``threshold`` or ``factor`` is outside [0, 1].
    """

    work = "replacing words"

    def __init__(
        self,
        *,
        score: AbstractWordScore | None = None,
        threshold: Fraction = 0.9,
        factor: Fraction = 1.0,
    ) -> None:
        super().__init__(score=score, threshold=threshold)
        self.factor = require_fraction("factor", factor)

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """Return one edit for each selected sample with a word above the threshold."""
        surest: dict[int, WordDoubt] = {}
        for doubt in self._doubts(context):
            known = surest.get(doubt.row)
            if known is None or _certainty(doubt) > _certainty(known):
                surest[doubt.row] = doubt
        edits, unchanged, notes = [], [], []
        for candidate in selected:
            doubt = surest.get(candidate.sample.row)
            if doubt is not None:
                edits.append(_mended(context, candidate, doubt))
            elif self.factor < 1:
                value = f"{candidate.sample.weight * self.factor:.6g}"
                edits.append(context.edit(candidate, "down_weight", value=value))
            else:
                unchanged.append(candidate.sample.sample_id)
                notes.append(f"{LEFT_ALONE}no word in enough doubt")
        return Amended(edits=tuple(edits), unchanged=tuple(unchanged), notes=tuple(notes))


def _certainty(doubt: WordDoubt) -> tuple[float, float]:
    return doubt.probability, doubt.log_odds


def _mended(context: Context, candidate: Selected, doubt: WordDoubt) -> Edit:
    caption = candidate.sample.caption
    try:
        value = replace_word(caption, doubt.start, doubt.word, doubt.alternative)
    except ValueError as error:
        raise ValueError(
            f"the doubted words of {candidate.sample.sample_id!r} belong to another caption: "
            f"{error}"
        ) from error
    reason = f"{candidate.reason}; {doubt.word!r} is wrong with probability "
    return context.edit(
        replace(candidate, reason=f"{reason}{doubt.probability:.2f}"),
        "replace_caption",
        value=value,
        origin=origin_of(doubt),
    )
