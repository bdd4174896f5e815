"""The caption's own loss (data curation paper, section 3.1), of one epoch or of several."""

from __future__ import annotations

from torch import Tensor

from captioning.ranges import PositiveInt
from curation.base import AbstractScore, Context


class Loss(AbstractScore):
    """Mean loss over the last epochs.

    Args:
        num_epochs: how many; 1 is the epoch that just ended, as in the paper.

    Raises:
        ValueError: ``num_epochs`` below 1.
    """

    name = "loss"

    def __init__(self, *, num_epochs: PositiveInt = 1) -> None:
        if num_epochs < 1:
            raise ValueError(f"num_epochs must be at least 1: got {num_epochs}")
        self.num_epochs = num_epochs

    def scores(self, context: Context) -> Tensor:
        """NaN where the sample was seen in none of these epochs."""
        if self.num_epochs == 1:
            return context.losses
        return context.history[-self.num_epochs :].nanmean(0)
