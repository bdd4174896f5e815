"""Select a random fraction of the samples, as a control for selection by score."""

from __future__ import annotations

import torch
from torch import Tensor

from captioning.config.ranges import Fraction
from curation.base import Context, Selected, Selector, as_numpy
from curation.loop.ramp import Ramp, require_ratio
from curation.select.ranking import num_of_fraction, worst_rows


class Random(Selector):
    """Selects a random fraction of the live samples, determined by the run's seed and the epoch.

    Args:
        ratio: fraction in [0, 1] of the live samples.

    Raises:
        ValueError: ``ratio`` outside [0, 1].
    """

    for_fewer = "lower curation.select.ratio"

    def __init__(self, *, ratio: Fraction | Ramp = 0.01) -> None:
        self.ratio, self._ramp = ratio, require_ratio(ratio)

    def scores(self, context: Context) -> Tensor:
        """Uniform random numbers in [0, 1), ``(N,)``, one for each roster row."""
        draws = context.random("random selection").random(len(context.view.roster))
        return torch.from_numpy(draws)

    def select(self, context: Context) -> list[Selected]:
        """Return the samples with the highest random numbers; losses are not used."""
        draws = as_numpy(self.scores(context))
        ratio = self._ramp.at(context.epoch)
        rows = worst_rows(context, draws, num_of_fraction(ratio, len(context.live)))
        reason = f"drawn at random ({100 * ratio:g}% of the live samples)"
        return [Selected(sample=context.live[row], reason=reason) for row in rows]
