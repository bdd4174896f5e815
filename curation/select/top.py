"""Select the fraction of samples with the worst score (data curation paper, section 3.1)."""

from __future__ import annotations

from captioning.config.ranges import Fraction
from curation.base import (
    Context,
    Score,
    Selected,
    as_numpy,
)
from curation.loop.ramp import Ramp, require_ratio
from curation.select.by_score import AbstractByScore
from curation.select.ranking import num_of_fraction, worst_rows


class Top(AbstractByScore):
    """Selects the samples with the highest scores.

    Args:
        ratio: fraction in [0, 1] of the samples that are live now (not of the first epoch's), or a
            `Ramp` of it over the epochs.
        score: score to rank by; default the epoch's mean loss per token.

    Raises:
        ValueError: ``ratio`` outside [0, 1].
    """

    for_fewer = "lower curation.select.ratio"

    def __init__(self, *, ratio: Fraction | Ramp = 0.01, score: Score | None = None) -> None:
        self.ratio, self._ramp = ratio, require_ratio(ratio)
        super().__init__(score)

    def select(self, context: Context) -> list[Selected]:
        """Return the selected samples, worst first; samples without a score are never selected."""
        total = len(context.live)
        ratio = self._ramp.at(context.epoch)
        count = num_of_fraction(ratio, total)
        if not count:
            return []
        scores = as_numpy(self.scores(context))
        rows = worst_rows(context, scores, count)
        values, share = scores[rows].tolist(), f"{100 * ratio:g}%"
        return [
            Selected(
                sample=context.live[row],
                reason=f"{self.score.name} {value:.3f}, rank {rank} of {total} (top {share})",
            )
            for rank, (row, value) in enumerate(zip(rows, values, strict=True), start=1)
        ]
