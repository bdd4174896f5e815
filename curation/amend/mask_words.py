"""Words in doubt are not learnt, and the rest of their captions is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from captioning.config.ranges import Fraction
from captioning.data.roster import masks_text
from captioning.types import MaskedSpan, Sample
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


class MaskWords(AbstractWordAmender):
    """Takes the words in doubt of selected captions out of the loss.

    The model still reads these words before it predicts the next ones. A masked word stays masked
    until its caption is replaced. Captions without a word in enough doubt stay as they are.

    Args:
        score: says which words are in doubt; None: the selector's own.
        threshold: least probability of being wrong at which a word is masked, in [0, 1].
        weight: what is left of the loss of a masked word, in [0, 1).

    Raises:
        ValueError: a number out of its range.
    """

    work = "masking words"
    masks_words = True

    def __init__(
        self,
        *,
        score: AbstractWordScore | None = None,
        threshold: Fraction = 0.5,
        weight: Fraction = 0.0,
    ) -> None:
        super().__init__(score=score, threshold=threshold)
        self.weight = require_fraction("weight", weight)
        if self.weight == 1:
            raise ValueError("weight must be below 1, as 1 masks nothing: got 1")

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """One edit for each selected sample that has a word to mask.

        Raises:
            ValueError: a record of the score that does not fit the caption.
        """
        doubts = defaultdict(list)
        for doubt in self._doubts(context):
            doubts[doubt.row].append(doubt)
        edits, unchanged = [], []
        for candidate in selected:
            sample = candidate.sample
            words = _new_words(sample, doubts[sample.row])
            if not words:
                unchanged.append(sample.sample_id)
                continue
            masks = [*sample.masks, *(_span(word, self.weight) for word in words)]
            value = masks_text(sorted(masks, key=lambda mask: mask.start))
            candidate = replace(candidate, reason=f"{candidate.reason}; {_in_words(words)}")
            edits.append(context.edit(candidate, "mask_words", value=value))
        notes = (f"{LEFT_ALONE}no word in enough doubt",) * len(unchanged)
        return Amended(edits=tuple(edits), unchanged=tuple(unchanged), notes=notes)


def _new_words(sample: Sample, doubts: Iterable[WordDoubt]) -> list[WordDoubt]:
    """The words to mask in order, without those that are masked; of overlapping ones the surest."""
    masked: list[MaskedSpan] = list(sample.masks)
    words = []
    for doubt in sorted(doubts, key=lambda doubt: (-doubt.probability, doubt.start)):
        end = doubt.start + len(doubt.word)
        if not doubt.word or sample.caption[doubt.start : end] != doubt.word:
            raise ValueError(
                f"a score doubts {doubt.word!r} at character {doubt.start} of "
                f"{sample.sample_id!r}, where its caption {sample.caption!r} has no such word: "
                "records must be of the captions as they stand now"
            )
        span = _span(doubt)
        if all(span.stop <= other.start or other.stop <= span.start for other in masked):
            masked.append(span)
            words.append(doubt)
    return sorted(words, key=lambda doubt: doubt.start)


def _span(doubt: WordDoubt, weight: float = 0.0) -> MaskedSpan:
    return MaskedSpan(start=doubt.start, stop=doubt.start + len(doubt.word), weight=weight)


def _in_words(doubts: Iterable[WordDoubt]) -> str:
    return ", ".join(
        f"{doubt.word!r} is likely {doubt.alternative!r} ({doubt.probability:.2f})"
        for doubt in doubts
    )
