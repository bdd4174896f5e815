"""The truth of planted faults: what an oracle would say, to measure policies against."""

from __future__ import annotations

import torch
from torch import Tensor

from curation.base import AbstractScore, Context
from curation.loop.truth import faulty_kinds


class Truth(AbstractScore):
    """1 for a sample that bears a planted fault as it stands now, 0 for all other live samples.

    For upper bounds only. Real data has no such column: there it is an error to ask.
    """

    name = "truth of the planted faults"

    def scores(self, context: Context) -> Tensor:
        """In {0, 1}; NaN for samples that are not live.

        Raises:
            ValueError: no fault was planted.
        """
        roster = context.view.roster
        if not roster.planted:
            raise ValueError(
                f"score truth needs planted faults, but {roster.name!r} has none: set "
                "steps=[plant_swap20] (or another plant_NAME), or use another score"
            )
        scores = torch.full((len(roster),), torch.nan)
        scores[torch.from_numpy(context.live_rows)] = 0.0
        scores[list(faulty_kinds(context.view, roster.planted))] = 1.0
        return scores
