"""How little the photo helps to predict the caption."""

from __future__ import annotations

import torch
from torch import Tensor

from captioning.config.ranges import PositiveInt
from curation.base import AbstractScore, Context

SIGNAL = "visual_gain"


class VisualGain(AbstractScore):
    """Minus the caption's loss given a mean image less its loss given the photo.

    Most of a caption's loss is the language's: rare words and long sentences are hard whatever the
    photo shows. The difference leaves what the photo contributes, which is little or negative where
    caption and photo do not belong together.

    Needs `curation.loop.probes.VisualGainProbe`, which measures it.

    Args:
        num_epochs: mean over so many last epochs, of those in which it was measured; what was
            measured before a sample got its present caption or picture does not count.
    """

    name = "lack of visual gain"

    def __init__(self, *, num_epochs: PositiveInt = 1) -> None:
        if num_epochs < 1:
            raise ValueError(f"num_epochs must be at least 1: got {num_epochs}")
        self.num_epochs = num_epochs

    def scores(self, context: Context) -> Tensor:
        """In nats (a token or a sentence, as the probe measured); NaN where it is unknown.

        Raises:
            ValueError: nobody measured it.
        """
        if SIGNAL not in context.signals:
            raise ValueError(
                "score visual_gain needs the probe that measures it: set curation/probe=visual_gain"
            )
        gains = context.signals[SIGNAL]
        was_measured = ~gains.isnan().all(1)  # the probe may have stopped measuring
        measured = context.of_present_pairs(gains)[was_measured]
        if not len(measured):
            return torch.full((gains.shape[1],), torch.nan)
        return -measured[-self.num_epochs :].nanmean(0)
