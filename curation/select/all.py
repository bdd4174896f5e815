"""Select all samples, for amenders that edit each sample by its score."""

from __future__ import annotations

import numpy as np

from curation.base import Context, Selected, as_numpy
from curation.select.by_score import AbstractByScore
from curation.select.ranking import ordered_rows


class All(AbstractByScore):
    """Selects every live sample, worst first; samples without a score come last."""

    def select(self, context: Context) -> list[Selected]:
        """Return all live samples; the reason is the score."""
        scores, name = as_numpy(self.scores(context)), self.score.name
        ranked = np.nan_to_num(scores, nan=-1e30)  # sorts below every score
        return [
            Selected(
                sample=context.live[row],
                reason=f"no {name}" if np.isnan(scores[row]) else f"{name} {scores[row]:.3f}",
            )
            for row in ordered_rows(context, ranked, context.live_rows)
        ]
