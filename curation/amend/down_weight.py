"""Keep bad samples with a lower loss weight, between keeping and removing them."""

from __future__ import annotations

from collections.abc import Sequence

from captioning.config.ranges import Fraction
from captioning.types import Edit
from curation.base import Amended, Amender, Context, Selected, require_fraction


class DownWeight(Amender):
    """Multiplies the weight that each selected sample's loss has in training by a factor.

    A sample that is selected again counts less still, so a policy that acts every epoch and errs
    now and then takes little from sound samples and much from those that stay suspect.

    Args:
        factor: factor of the weight, in [0, 1].
        min_weight: no weight falls below it, in [0, 1].

    Raises:
        ValueError: ``factor`` or ``min_weight`` is outside [0, 1].
    """

    changes_weights = True

    def __init__(self, *, factor: Fraction = 0.5, min_weight: Fraction = 0.0) -> None:
        self.factor = require_fraction("factor", factor)
        self.min_weight = require_fraction("min_weight", min_weight)

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """Return one edit for each selected sample whose weight is above the minimum."""
        edits: list[Edit] = []
        unchanged: list[str] = []
        for candidate in selected:
            weight = max(self.min_weight, candidate.sample.weight * self.factor)
            if weight >= candidate.sample.weight:
                unchanged.append(candidate.sample.sample_id)
                continue
            edits.append(context.edit(candidate, "down_weight", value=f"{weight:.6g}"))
        return Amended(edits=tuple(edits), unchanged=tuple(unchanged))
