"""All samples, for amenders that act on each by its score."""

from __future__ import annotations

from curation.base import Context, Selected, as_numpy
from curation.select.by_score import AbstractByScore


class All(AbstractByScore):
    """Selects every live sample, in roster order."""

    def select(self, context: Context) -> list[Selected]:
        """All of them; the reason is the score."""
        scores = as_numpy(self.scores(context))
        name = self.score.name
        return [
            Selected(
                sample=sample,
                reason=f"no {name}" if (value := scores[row]) != value else f"{name} {value:.3f}",
            )
            for row, sample in context.live.items()
        ]
