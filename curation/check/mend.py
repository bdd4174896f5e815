"""Replace a caption's wrong word by the word that fits, or remove a wrong sentence.

They are edits for the cleaned set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from captioning.data.roster import Roster, masks_text
from captioning.text.sentence_spans import without
from captioning.text.word_rows import closed_rows, replace_word
from captioning.types import Edit, MaskedSpan
from curation.amend.replace_word import origin_of
from curation.amend.sentences import ORIGIN as SENTENCE
from curation.base import SentenceDoubt, WordDoubt
from curation.check.evidence import Scores, shortened
from curation.check.sentence_checks import NAME as SENTENCES
from curation.check.support import JOINTS, PEOPLE, SEX_OF, stands_alone, support_of, tokens_of
from curation.check.word_checks import NAME

MEND_FROM = 0.8  # three other captions or more say the new word, and networks agree
_PLURAL_ONLY = frozenset(("pants", "jeans", "shorts", "glasses", "sunglasses"))
_NO_COLOURED = frozenset(("water", "juice", "light", "lights", "wine", "tea", "hair", "belt"))


class Flagged(Protocol):
    """Part of a `curation.check.result.CheckResult` that mending reads."""

    @property
    def roster(self) -> Roster:
        """Captions that were checked."""
        ...

    @property
    def scores(self) -> Mapping[str, Scores]:
        """Scores of the captions by name of the check."""
        ...

    @property
    def thresholds(self) -> Mapping[str, float]:
        """Thresholds by name of the check."""
        ...

    @property
    def flags(self) -> Mapping[str, NDArray[np.bool_]]:
        """Flagged captions, ``(N,)`` booleans, by name of the check."""
        ...

    @property
    def removing(self) -> Sequence[str]:
        """Names of the checks whose flagged captions are removed."""
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
        """Build the journal edit that replaces the caption."""
        doubt = self.doubt
        return Edit(
            sample_id=sample_id,
            action="replace_caption",
            value=self.caption,
            origin=origin_of(doubt),
            reason=f"{doubt.word!r} is estimated to be wrong with a chance of "
            f"{doubt.probability:.2f}; the photo's other captions say {doubt.alternative!r}",
            policy=policy,
            epoch=-1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortening:
    """A caption without the sentences that do not fit its photo.

    Attributes:
        doubts: about these sentences, in the caption's order.
        caption: the caption without these sentences.
    """

    doubts: Sequence[SentenceDoubt]
    caption: str

    def edit(self, sample_id: str, *, policy: str) -> Edit:
        """Build the journal edit that replaces the caption."""
        told = "; ".join(
            f"{shortened([one.sentence])} ({one.suspicion:.2f})" for one in self.doubts
        )
        return Edit(
            sample_id=sample_id,
            action="replace_caption",
            value=self.caption,
            origin=f"{SENTENCE}{masks_text(self._spans)}",
            reason=f"estimated not to belong to the photo, with the chance: {told}",
            policy=policy,
            epoch=-1,
        )

    @property
    def _spans(self) -> list[MaskedSpan]:
        return [MaskedSpan(start=one.start, stop=one.stop) for one in self.doubts]


def shortenings(result: Flagged) -> tuple[dict[int, Shortening], dict[int, str]]:
    """Shortened captions by row, and reasons by row why other captions were not shortened.

    A sentence at or above the threshold is removed. Captions that another check removes, or that
    would lose every sentence, are not shortened.

    Raises:
        ValueError: sentences were not judged.
    """
    scores = result.scores.get(SENTENCES)
    if scores is None or not scores.sentences:
        why = "that check was left out" if scores is None else scores.note
        why = why or "no caption has several"
        raise ValueError(f"cannot mend wrong sentences: {why}")
    others = [result.flags[name] for name in result.removing if name != SENTENCES]
    elsewhere = np.any([*others, np.zeros(len(result.roster), bool)], axis=0)
    found, left = {}, {}
    for row in np.flatnonzero(result.flags[SENTENCES] & ~elsewhere).tolist():
        least = result.thresholds[SENTENCES]
        wrong = [doubt for doubt in scores.sentences[row] if doubt.suspicion >= least]
        wrong = sorted(wrong, key=lambda doubt: doubt.start)
        spans = [MaskedSpan(start=one.start, stop=one.stop) for one in wrong]
        if rest := without(result.roster.samples[row].caption, spans):
            found[row] = Shortening(doubts=wrong, caption=rest)
        else:
            left[row] = "no sentence would be left"
    return found, left


def replacement(caption: str, doubt: WordDoubt) -> Replacement:
    """Build the caption with a doubtful word replaced by its alternative."""
    text = replace_word(caption, doubt.start, doubt.word, doubt.alternative)
    return Replacement(doubt=doubt, caption=text)


def flagged_elsewhere(result: Flagged) -> NDArray[np.bool_]:
    """Captions, ``(N,)``, that a check other than the word check flags and removes."""
    others = [result.flags[name] for name in result.removing if name != NAME]
    return np.any([*others, np.zeros(len(result.roster), bool)], axis=0)


def mendable(result: Flagged, *, threshold: float = MEND_FROM) -> dict[int, Replacement]:
    """Mended captions by row: exactly one word is surely wrong, and no other check flags them.

    The photo's other captions must say the new word, see `curation.check.support`, and the sentence
    must allow it, see `not_fitting`. `left_unmended` has the reasons for other captions.

    Args:
        result: a check's result.
        threshold: least probability of being wrong at which a word is replaced, in [0, 1].

    Raises:
        ValueError: words were not judged, or a threshold outside [0, 1].
    """
    return {row: new for row, new, why in _judged(result, threshold) if not why}


def left_unmended(result: Flagged, *, threshold: float = MEND_FROM) -> dict[int, str]:
    """Reasons by row why a caption flagged only for a word is not mended; see `mendable`."""
    return {row: why for row, _, why in _judged(result, threshold) if why}


def _judged(result: Flagged, threshold: float) -> Iterator[tuple[int, Replacement, str]]:
    """Captions flagged only for a word, each with its replacement and any objection."""
    if not 0 <= threshold <= 1:
        raise ValueError(
            f"the probability threshold for replacing words must be in [0, 1]: got {threshold}"
        )
    scores = result.scores.get(NAME)
    if scores is None or not scores.words:
        why = "that check was left out" if scores is None else scores.note
        raise ValueError(f"cannot mend wrong words: {why}")
    samples, rows_by_image = result.roster.samples, result.roster.rows_by_image
    for row in np.flatnonzero(result.flags[NAME] & ~flagged_elsewhere(result)).tolist():
        surest, *further = scores.words[row]
        caption = samples[row].caption
        others = [samples[r].caption for r in rows_by_image[samples[row].image_id] if r != row]
        if surest.probability < threshold:
            why = f"its probability {surest.probability:.2f} of being wrong is below {threshold:g}"
        elif any(doubt.probability >= result.thresholds[NAME] for doubt in further):
            why = "a second word is doubtful"
        elif not support_of(surest, caption, others).is_firm:
            why = f"too few other captions say {surest.alternative!r} about the same thing"
        else:
            why = not_fitting(caption, surest)
        yield row, replacement(caption, surest), why


def not_fitting(caption: str, doubt: WordDoubt) -> str:
    """Reason why a sentence cannot contain the other word; empty if it can."""
    start, stop = doubt.start, doubt.start + len(doubt.word)
    word, new = doubt.word.lower(), doubt.alternative.lower()
    tokens, place = tokens_of(caption), len(tokens_of(caption[:start]))
    before, after = tokens[max(place - 1, 0) : place], tokens[place + 1 : place + 2]
    table = closed_rows()
    if {caption[max(start - 1, 0) : start], caption[stop : stop + 1]} & JOINTS:
        return f"{word!r} is part of a compound"
    others = {*tokens[:place], *tokens[place + 1 :]}
    if table.same.get(new, frozenset([new])) & others:
        return f"{new!r} is in the caption already"
    if doubt.topic in ("object", "people") and not stands_alone(tokens, place):
        return f"{word!r} may be part of a compound"
    if new in _PLURAL_ONLY and before and before[0] in ("a", "an"):
        return f"{before[0]!r} does not go with {new!r}"
    if doubt.topic == "color" and after and (after[0] in PEOPLE or after[0] in _NO_COLOURED):
        return f"{word!r} says more than a colour of {after[0]!r}"
    sexes = {SEX_OF[token] for token in others if token in SEX_OF}
    if new in SEX_OF and sexes - {SEX_OF[new]}:
        return f"{new!r} does not agree with the caption's other words"
    return ""
