"""Select samples whose score is above a fixed threshold."""

from __future__ import annotations

import math

from curation.base import Context, Score, Selected, as_numpy
from curation.select.by_score import AbstractByScore
from curation.select.ranking import ordered_rows


class Above(AbstractByScore):
    """Selects all samples with a score above a fixed threshold.

    Args:
        threshold: threshold in the score's own unit.
        score: score to compare; default the epoch's loss.

    Raises:
        ValueError: ``threshold`` is not a finite number.
    """

    for_fewer = "raise curation.select.threshold"

    def __init__(self, *, threshold: float, score: Score | None = None) -> None:
        if isinstance(threshold, bool) or not isinstance(threshold, int | float):
            raise ValueError(f"threshold must be a number: got {threshold!r}")
        if not math.isfinite(threshold):
            raise ValueError(f"threshold must be finite: got {threshold!r}")
        self.threshold = float(threshold)
        super().__init__(score)

    def select(self, context: Context) -> list[Selected]:
        """Return the selected samples, worst first; samples without a score are never selected."""
        scores = as_numpy(self.scores(context))
        # a comparison with NaN is false
        over = context.live_rows[scores[context.live_rows] > self.threshold]
        rows = ordered_rows(context, scores, over)
        return [
            Selected(
                sample=context.live[row],
                reason=f"{self.score.name} {value:.3f} > {self.threshold:g}",
            )
            for row, value in zip(rows, scores[rows].tolist(), strict=True)
        ]
