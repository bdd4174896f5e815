"""Scores of words and sentences that need no model: some of them are always in doubt."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from captioning.text.sentence_spans import sentence_spans
from captioning.types import Sample
from curation.base import (
    AbstractSentenceScore,
    AbstractWordScore,
    Context,
    SentenceDoubt,
    WordDoubt,
)


class ToyWords(AbstractWordScore):
    """Doubts the words of a list, whatever the photo shows.

    Args:
        rivals: a likelier word for each, and the probability that the word is wrong.
    """

    name = "toy words"

    def __init__(self, rivals: Mapping[str, tuple[str, float]]) -> None:
        self._rivals = dict(rivals)

    def scores(self, context: Context) -> Tensor:
        scores = torch.full((len(context.view.roster),), torch.nan)
        for doubt in self.doubts(context):
            scores[doubt.row] = scores[doubt.row].nan_to_num(0).clamp(min=doubt.log_odds)
        return scores

    def doubts(self, context: Context) -> list[WordDoubt]:
        return [doubt for sample in context.live.values() for doubt in self._of(sample)]

    def _of(self, sample: Sample) -> list[WordDoubt]:
        found = re.finditer(r"\w+", sample.caption)
        words = [match for match in found if match.group() in self._rivals]
        return [
            WordDoubt(
                row=sample.row,
                start=match.start(),
                word=match.group(),
                alternative=self._rivals[match.group()][0],
                log_odds=1.0,
                probability=self._rivals[match.group()][1],
            )
            for match in words
        ]


class ToySentences(AbstractSentenceScore):
    """Doubts sentences by their first two words; others are not judged."""

    name = "toy sentences"

    def __init__(self, values: Mapping[str, float]) -> None:
        self._values = dict(values)

    def doubts(self, context: Context) -> list[SentenceDoubt]:
        return [
            SentenceDoubt(row=row, start=start, sentence=text, suspicion=self._values[key])
            for row, sample in context.live.items()
            for start, stop in sentence_spans(sample.caption)
            if (key := " ".join((text := sample.caption[start:stop]).split()[:2])) in self._values
        ]
