"""Sentences in doubt leave the loss, or the caption; the rest of a long caption stays."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

from captioning.config.ranges import Fraction
from captioning.data.roster import masks_text, parse_masks
from captioning.text.sentence_spans import sentence_spans, without
from captioning.types import Edit, MaskedSpan, Sample
from curation.amend.mask_words import mask, new_spans
from curation.base import (
    LEFT_ALONE,
    AbstractSentenceScore,
    AbstractSpanAmender,
    Amended,
    Context,
    Selected,
    SentenceDoubt,
    by_row,
    require_fraction,
)

ORIGIN = "sentence:"
"""How origins of captions begin that lost sentences: ``sentence:START-STOP``, with commas between
several, in the old caption."""

Emptied = Literal["keep", "remove"]


def removed_spans(origin: str) -> tuple[MaskedSpan, ...]:
    """Where the sentences stood that a caption of this origin lost; none for other origins."""
    if not re.fullmatch(rf"{ORIGIN}\d+-\d+(,\d+-\d+)*", origin):
        return ()
    return parse_masks(origin.removeprefix(ORIGIN))


class AbstractSentenceAmender(AbstractSpanAmender[AbstractSentenceScore]):
    """An amender that acts on the sentences in doubt of selected captions.

    Args:
        score: says which sentences are in doubt; None: the selector's own.
        threshold: least suspicion at which it acts on a sentence, in the score's unit; None: it
            acts on the caption's worst one alone, one at each decision.
        emptied: what happens to a caption of which no sentence would be left: ``"keep"`` leaves it
            as it is, with a note; ``"remove"`` removes it.

    Raises:
        ValueError: another value of ``emptied``.
    """

    score_type = AbstractSentenceScore
    which_score = "sentences are in doubt: choose curation/score=sentence_loss or sentence_fit"

    def __init__(
        self,
        *,
        score: AbstractSentenceScore | None = None,
        threshold: float | None = None,
        emptied: Emptied = "keep",
    ) -> None:
        super().__init__(score=score)
        if emptied not in get_args(Emptied):
            raise ValueError(f"emptied must be one of {get_args(Emptied)}: got {emptied!r}")
        self.threshold, self.emptied = threshold, emptied

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """One edit for each selected sample with a sentence that is enough in doubt.

        Raises:
            ValueError: a record of the score that does not fit the caption.
        """
        doubts = by_row(self._span_score().doubts(context))
        edits, unchanged, notes = [], [], []
        for candidate in selected:
            sample = candidate.sample
            chosen = self._chosen(sample, doubts.get(sample.row, ()))
            if chosen and not _is_emptied(sample, chosen):
                told = "; ".join(f"{_shortened(one.text)!r} ({one.value:.3g})" for one in chosen)
                named = replace(candidate, reason=f"{candidate.reason}; {told}")
                edits.append(self._edit(context, named, chosen))
            elif chosen and self.emptied == "remove":
                edits.append(context.edit(candidate, "remove"))
            else:
                unchanged.append(sample.sample_id)
                why = "no other sentence would be left" if chosen else "no sentence in enough doubt"
                notes.append(f"{LEFT_ALONE}{why}")
        return Amended(edits=tuple(edits), unchanged=tuple(unchanged), notes=tuple(notes))

    def _chosen(self, sample: Sample, doubts: Sequence[SentenceDoubt]) -> list[SentenceDoubt]:
        """The sentences to act on, in order."""
        free = new_spans(sample, doubts)
        if self.threshold is not None:
            return [doubt for doubt in free if doubt.value >= self.threshold]
        return [max(free, key=lambda doubt: doubt.value)] if free else []

    @abstractmethod
    def _edit(self, context: Context, candidate: Selected, chosen: list[SentenceDoubt]) -> Edit:
        """What is done to these sentences, of which the caption has others."""


class MaskSentences(AbstractSentenceAmender):
    """Takes the sentences in doubt of selected captions out of the loss.

    The model still reads them before it predicts the next ones. A masked sentence stays masked
    until its caption is replaced. The edit is that of masked words.

    Args:
        score, threshold, emptied: see `AbstractSentenceAmender`.
        weight: what is left of the loss of a masked sentence, in [0, 1).

    Raises:
        ValueError: a number out of its range.
    """

    work = "masking sentences"
    masks_words = True

    def __init__(
        self,
        *,
        score: AbstractSentenceScore | None = None,
        threshold: float | None = None,
        emptied: Emptied = "keep",
        weight: Fraction = 0.0,
    ) -> None:
        super().__init__(score=score, threshold=threshold, emptied=emptied)
        self.weight = require_fraction("weight", weight)
        if self.weight == 1:
            raise ValueError("weight must be below 1, as 1 masks nothing: got 1")

    def _edit(self, context: Context, candidate: Selected, chosen: list[SentenceDoubt]) -> Edit:
        return mask(context, candidate, chosen, weight=self.weight)


class RemoveSentences(AbstractSentenceAmender):
    """Takes the sentences in doubt of selected captions out of the caption.

    The model neither reads nor learns them, and an exported set does not have them.
    """

    work = "removing sentences"

    def _edit(self, context: Context, candidate: Selected, chosen: list[SentenceDoubt]) -> Edit:
        spans = [MaskedSpan(start=doubt.start, stop=doubt.stop) for doubt in chosen]
        return context.edit(
            candidate,
            "replace_caption",
            value=without(candidate.sample.caption, spans),
            origin=f"{ORIGIN}{masks_text(spans)}",
        )


def _is_emptied(sample: Sample, chosen: Sequence[SentenceDoubt]) -> bool:
    """Whether no sentence would be left that is not masked."""
    gone = {(doubt.start, doubt.stop) for doubt in chosen}
    left = [span for span in sentence_spans(sample.caption) if span not in gone]
    return not any(
        all(mask.stop <= start or stop <= mask.start for mask in sample.masks)
        for start, stop in left
    )


def _shortened(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
