"""The fraction of samples with the highest loss (data curation paper, section 3.1)."""

from __future__ import annotations

from torch import Tensor

from curation.base import AbstractSelector, Context, Selected, as_numpy, require_fraction
from curation.select.ranking import num_of_fraction, worst_rows


class TopLoss(AbstractSelector):
    """Selects the highest losses of the epoch.

    Args:
        ratio: fraction in [0, 1] of the samples that are live now (not of the first epoch's).

    Raises:
        ValueError: ``ratio`` outside [0, 1].
    """

    def __init__(self, *, ratio: float = 0.01) -> None:
        self.ratio = require_fraction("ratio", ratio)

    def scores(self, context: Context) -> Tensor:
        """The epoch's losses."""
        return context.losses

    def select(self, context: Context) -> list[Selected]:
        """Worst first; a sample whose loss is unknown is never selected."""
        losses = as_numpy(context.losses)
        total = len(context.live)
        rows = worst_rows(context, losses, num_of_fraction(self.ratio, total))
        values, share = losses[rows].tolist(), f"{100 * self.ratio:g}%"
        return [
            Selected(
                sample=context.live[row],
                reason=f"loss {value:.3f}, rank {rank} of {total} (top {share})",
            )
            for rank, (row, value) in enumerate(zip(rows, values, strict=True), start=1)
        ]
