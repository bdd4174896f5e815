"""Score a sample by its training rewards, see `captioning.training.objectives`."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from captioning.config.ranges import PositiveInt
from captioning.types import CAPTION_REWARD, REWARD
from curation.base import Context, Score

Of = Literal["draws", "caption", "gap"]


class Reward(Score):
    """Low reward over the last epochs in which a sample had its present caption and image.

    Args:
        of: minus the mean reward of the captions ``"draws"`` for the photo, minus that of the
            sample's own ``"caption"``, or the ``"gap"`` by which draws are better than the caption.
        num_epochs: how many; 1 is the epoch that just ended.

    Raises:
        ValueError: ``of`` is unknown.
    """

    def __init__(self, *, of: Of = "draws", num_epochs: PositiveInt = 1) -> None:
        if of not in get_args(Of):
            raise ValueError(f"of must be one of {get_args(Of)}: got {of!r}")
        self.of, self.num_epochs = of, num_epochs
        self.name = {
            "draws": "minus the reward of the photo's draws",
            "caption": "minus the caption's reward",
            "gap": "reward of the photo's draws above the caption's",
        }[of]

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the rewards that this score reads."""
        both = {"draws": (REWARD,), "caption": (CAPTION_REWARD,), "gap": (REWARD, CAPTION_REWARD)}
        return both[self.of]

    def scores(self, context: Context) -> Tensor:
        """Suspicion in the reward's unit; NaN if the pair was seen in none of the epochs.

        Raises:
            ValueError: the rewards were not measured.
        """
        missing = [name for name in self.signals if name not in context.signals]
        if missing:
            raise ValueError(
                "curation/score=reward needs the rewards of training, which this run did not "
                "measure: train with objective=self_critical or grpo and curation/score=reward "
                "from the start, or choose another score"
            )
        if not len(context.signals[self.signals[0]]):
            return torch.full((len(context.view.roster),), torch.nan)
        means = {
            name: context.of_present_pairs(context.signals[name])[-self.num_epochs :].nanmean(0)
            for name in self.signals
        }
        return (
            means.get(REWARD, 0) - means[CAPTION_REWARD] if self.of != "draws" else -means[REWARD]
        )
