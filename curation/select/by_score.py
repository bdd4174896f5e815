"""Shared part of selectors that rank by a score."""

from __future__ import annotations

from torch import Tensor

from curation.base import AbstractScore, AbstractSelector, Context
from curation.score.loss import Loss


class AbstractByScore(AbstractSelector):
    """A selector that ranks by a score of its own.

    Args:
        score: what is looked at; default the epoch's loss, as in the data curation paper.
    """

    def __init__(self, score: AbstractScore | None = None) -> None:
        self.score = score if score is not None else Loss()

    @property
    def opens_photos(self) -> bool:
        """As its score."""
        return self.score.opens_photos

    @property
    def signals(self) -> tuple[str, ...]:
        """Those of its score."""
        return self.score.signals

    def scores(self, context: Context) -> Tensor:
        """Those of ``score``."""
        return self.score.scores(context)
