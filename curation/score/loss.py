"""Score a caption by its loss in one or several epochs (data curation paper, section 3.1)."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from captioning.config.ranges import PositiveInt
from curation.base import Context, Score

SUMMED = "summed_loss"
"""Name of the measurement of each caption's loss, summed over its tokens."""
Reduction = Literal["mean", "sum"]


class Loss(Score):
    """Mean loss over the last epochs in which a sample had its present caption and image.

    Args:
        num_epochs: how many; 1 is the epoch that just ended, as in the paper.
        loss: loss of a caption: ``"mean"`` over its tokens, or ``"sum"``, as in the paper's Figure
            2, which ranks long captions high.

    Raises:
        ValueError: ``num_epochs`` below 1, or another ``loss``.
    """

    def __init__(self, *, num_epochs: PositiveInt = 1, loss: Reduction = "mean") -> None:
        if num_epochs < 1:
            raise ValueError(f"num_epochs must be at least 1: got {num_epochs}")
        if loss not in get_args(Reduction):
            raise ValueError(f"loss must be one of {get_args(Reduction)}: got {loss!r}")
        self.num_epochs, self.loss = num_epochs, loss
        self.name = "loss" if loss == "mean" else "summed loss"

    @property
    def signals(self) -> tuple[str, ...]:
        """Name of the summed losses if this score ranks by them."""
        return () if self.loss == "mean" else (SUMMED,)

    def scores(self, context: Context) -> Tensor:
        """Losses in nats (per token or caption); NaN if the pair was in none of the epochs.

        Raises:
            ValueError: the summed losses were not measured.
        """
        if self.loss == "mean" and self.num_epochs == 1:
            return context.losses
        history = context.history if self.loss == "mean" else _summed(context)
        if not len(history):
            return torch.full((history.shape[1],), torch.nan)
        return context.of_present_pairs(history)[-self.num_epochs :].nanmean(0)


def _summed(context: Context) -> Tensor:
    """Losses summed over the tokens of each caption, ``(E, N)``."""
    if SUMMED not in context.signals:
        raise ValueError(
            "curation.score.loss=sum needs each caption's loss summed over its tokens, which this "
            "run did not measure: train with curation.score.loss=sum from the start, or use "
            "curation.score.loss=mean"
        )
    return context.signals[SUMMED]
