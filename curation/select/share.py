"""Select a random share of every image's captions, for static replacement (paper, section 5.1)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from captioning.config.ranges import Fraction
from curation.base import Context, Selected, Selector, as_numpy, require_fraction
from curation.select.ranking import ordered_rows


class Share(Selector):
    """Selects at random the same share of the live captions of each image, without losses.

    If the share is not a whole number of captions, a random draw decides on the last one, so that
    the share holds on average: half of five captions are two or three.

    Args:
        ratio: share in [0, 1].
        coin: decide for each sample independently with probability ``ratio``, as the paper does for
            one half ("a fair coin-flip").

    Raises:
        ValueError: ``ratio`` outside [0, 1].
    """

    for_fewer = "lower curation.select.ratio"

    def __init__(self, *, ratio: Fraction = 0.2, coin: bool = False) -> None:
        self.ratio = require_fraction("ratio", ratio)
        self.coin = coin

    def scores(self, context: Context) -> Tensor:
        """Random scores ``(N,)``: in [1, 2) for selected samples, below 1 for all others."""
        draws = context.random("random share").random(len(context.view.roster))
        draws[self._rows(context, draws)] += 1
        return torch.from_numpy(draws)

    def select(self, context: Context) -> list[Selected]:
        """Return the samples with the highest random numbers of each image."""
        scores = as_numpy(self.scores(context))
        rows = ordered_rows(context, scores, np.flatnonzero(scores >= 1))
        method = "by a coin" if self.coin else "of its image's captions"
        reason = f"drawn at random ({100 * self.ratio:g}% {method})"
        return [Selected(sample=context.live[row], reason=reason) for row in rows]

    def _rows(self, context: Context, draws: np.ndarray) -> list[int]:
        if self.coin:
            return context.live_rows[draws[context.live_rows] >= 1 - self.ratio].tolist()
        rounding = context.random("rounding of shares")
        selected: list[int] = []
        for rows in context.view.roster.rows_by_image.values():
            live = [row for row in rows if row in context.live]
            # one draw for each image, so that images do not change each other's draws
            count = int(self.ratio * len(live) + 1e-9 + rounding.random() * (1 - 2e-9))
            selected += sorted(live, key=lambda row: -draws[row])[:count]
        return selected
