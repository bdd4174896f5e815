"""Mask doubtful words out of the loss and train on the rest of the caption."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from captioning.config.ranges import Fraction
from captioning.data.roster import masks_text
from captioning.types import Edit, MaskedSpan, Sample
from curation.base import (
    LEFT_ALONE,
    AbstractSpanDoubt,
    AbstractWordAmender,
    AbstractWordScore,
    Amended,
    Context,
    Selected,
    SpanT,
    WordDoubt,
    by_row,
    require_fraction,
)


class MaskWords(AbstractWordAmender):
    """Masks the doubted words of selected captions out of the loss.

    The model still reads these words before it predicts the next ones. A masked word stays masked
    until its caption is replaced. Captions without a word in enough doubt stay as they are.

    Args:
        score: names the doubtful words; None: the selector's score.
        threshold: least probability of being wrong at which a word is masked, in [0, 1].
        weight: remaining share of a masked word's loss, in [0, 1).

    Raises:
        ValueError: ``threshold`` or ``weight`` is out of range.
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
            raise ValueError("weight must be below 1: got 1, which would mask nothing")

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """Return one edit for each selected sample that has a word to mask.

        Raises:
            ValueError: a record of the score does not match the caption.
        """
        doubts = by_row(self._doubts(context))
        edits, unchanged = [], []
        for candidate in selected:
            words = new_spans(candidate.sample, doubts.get(candidate.sample.row, ()))
            if not words:
                unchanged.append(candidate.sample.sample_id)
                continue
            candidate = replace(candidate, reason=f"{candidate.reason}; {_in_words(words)}")
            edits.append(mask(context, candidate, words, weight=self.weight))
        notes = (f"{LEFT_ALONE}no word in enough doubt",) * len(unchanged)
        return Amended(edits=tuple(edits), unchanged=tuple(unchanged), notes=notes)


def mask(
    context: Context, candidate: Selected, spans: Iterable[AbstractSpanDoubt], *, weight: float
) -> Edit:
    """Return an edit that masks further parts of a caption and keeps its earlier masks.

    Args:
        context: the decision's context.
        candidate: the sample, and why it was selected.
        spans: spans of `new_spans`.
        weight: remaining share of the loss of their tokens, in [0, 1).
    """
    new = (MaskedSpan(start=span.start, stop=span.stop, weight=weight) for span in spans)
    masks = sorted([*candidate.sample.masks, *new], key=lambda mask: mask.start)
    return context.edit(candidate, "mask_words", value=masks_text(masks))


def new_spans(sample: Sample, doubts: Iterable[SpanT]) -> list[SpanT]:
    """Return the parts to mask, in order: not yet masked, and the worst of overlapping parts.

    Raises:
        ValueError: a record of the score does not match the caption.
    """
    masked = list(sample.masks)
    chosen = []
    for doubt in sorted(doubts, key=lambda doubt: (-doubt.value, doubt.start)):
        doubt.check(sample)
        if not doubt.overlaps(masked):
            masked.append(MaskedSpan(start=doubt.start, stop=doubt.stop))
            chosen.append(doubt)
    return sorted(chosen, key=lambda doubt: doubt.start)


def _in_words(doubts: Iterable[WordDoubt]) -> str:
    return ", ".join(
        f"{doubt.word!r} is likely {doubt.alternative!r} ({doubt.probability:.2f})"
        for doubt in doubts
    )
