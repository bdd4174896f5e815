"""Losses far above the mean (data curation paper, section 3.1: two standard deviations)."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from curation.base import AbstractSelector, Context, Selected, as_numpy
from curation.select.ranking import ordered_rows


class Sigma(AbstractSelector):
    """Selects losses above ``mean + num_std * std`` of the live samples seen in this epoch.

    Args:
        num_std: distance from the mean in sample standard deviations, at least 0.

    Raises:
        ValueError: ``num_std`` negative or not a finite number.
    """

    def __init__(self, *, num_std: float = 2.0) -> None:
        if isinstance(num_std, bool) or not isinstance(num_std, int | float):
            raise ValueError(f"num_std must be a number of at least 0: got {num_std!r}")
        if not math.isfinite(num_std) or num_std < 0:
            raise ValueError(f"num_std must be a finite number of at least 0: got {num_std!r}")
        self.num_std = float(num_std)

    def scores(self, context: Context) -> Tensor:
        """The epoch's losses."""
        return context.losses

    def select(self, context: Context) -> list[Selected]:
        """Worst first; none with fewer than two seen samples, whose spread is undefined."""
        losses = as_numpy(context.losses)
        seen = context.live_rows[~np.isnan(losses[context.live_rows])]
        if len(seen) < 2:
            return []
        mean, std = losses[seen].mean(), losses[seen].std(ddof=1)
        over = seen[losses[seen] > mean + self.num_std * std]
        limit = f"{mean:.3f} + {self.num_std:g} x {std:.3f} (mean + standard deviations)"
        rows = ordered_rows(context, losses, over)
        return [
            Selected(sample=context.live[row], reason=f"loss {value:.3f} > {limit}")
            for row, value in zip(rows, losses[rows].tolist(), strict=True)
        ]
