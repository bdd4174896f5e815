"""A score of words that needs no model: some words are always in doubt."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from captioning.types import Sample
from curation.base import AbstractWordScore, Context, WordDoubt


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
