"""Select scores far above the mean (data curation paper, section 3.1: two standard deviations)."""

from __future__ import annotations

import math

import numpy as np

from captioning.config.ranges import NonNegativeFloat
from curation.base import Context, Score, Selected, as_numpy
from curation.select.by_score import AbstractByScore
from curation.select.ranking import ordered_rows


class Sigma(AbstractByScore):
    """Selects scores above ``mean + num_std * std`` of the live samples with a score.

    Args:
        num_std: distance from the mean in sample standard deviations, at least 0.
        score: score to compare; default the epoch's mean loss per token.

    Raises:
        ValueError: ``num_std`` negative or not a finite number.
    """

    for_fewer = "raise curation.select.num_std"

    def __init__(self, *, num_std: NonNegativeFloat = 2.0, score: Score | None = None) -> None:
        if isinstance(num_std, bool) or not isinstance(num_std, int | float):
            raise ValueError(f"num_std must be a number of at least 0: got {num_std!r}")
        if not math.isfinite(num_std) or num_std < 0:
            raise ValueError(f"num_std must be a finite number of at least 0: got {num_std!r}")
        self.num_std = float(num_std)
        super().__init__(score)

    def select(self, context: Context) -> list[Selected]:
        """Return the selected samples, worst first; empty with fewer than two known scores."""
        scores = as_numpy(self.scores(context))
        known = context.live_rows[~np.isnan(scores[context.live_rows])]
        if len(known) < 2:
            return []
        mean, std = scores[known].mean(), scores[known].std(ddof=1)
        over = known[scores[known] > mean + self.num_std * std]
        limit = f"{mean:.3f} + {self.num_std:g} x {std:.3f} (mean + standard deviations)"
        rows = ordered_rows(context, scores, over)
        return [
            Selected(sample=context.live[row], reason=f"{self.score.name} {value:.3f} > {limit}")
            for row, value in zip(rows, scores[rows].tolist(), strict=True)
        ]
