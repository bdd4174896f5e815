"""Exponential moving average of the weights, quick to forget its beginning."""

from __future__ import annotations

from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor


class WarmWeightAveraging(WeightAveraging):
    """Validation, test and checkpoints use averaged weights.

    After ``n`` updates the decay is ``min(decay, (1 + n) / (10 + n))``: a short run is not
    spoilt by the untrained weights that a constant decay would still remember.

    Args:
        decay: of the average in the long run, in (0, 1).
    """

    def __init__(self, *, decay: float) -> None:
        def average(averaged: Tensor, current: Tensor, number: Tensor | int) -> Tensor:
            if not averaged.is_floating_point():
                return current  # counters of normalisation layers
            count = float(number)
            return averaged.lerp(current, 1 - min(decay, (1 + count) / (10 + count)))

        super().__init__(avg_fn=average)
