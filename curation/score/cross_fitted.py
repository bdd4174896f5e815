"""Score how badly captions fit their photos, by a model cross-fitted on the same noisy dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from captioning.data.roster import Roster
from captioning.types import Sample
from curation.base import Context, Score

Measure = Callable[[Roster, Sequence[Sample]], Tensor]


class CrossFitted(Score):
    """Negative similarity of photo and caption, from models trained on other photos.

    Args:
        measure: a roster and some of its samples, as they are now, to their likeness
            ``(len(samples),)``, higher is more alike. The roster is its training data; a judged
            pair must not be in the training data.
    """

    name = "unlikeness of photo and caption (cross-fitted joint space)"

    def __init__(self, *, measure: Measure) -> None:
        self._measure = measure

    @property
    def opens_photos(self) -> bool:
        """Whether the measure opens photos."""
        return bool(getattr(self._measure, "opens_photos", False))

    def scores(self, context: Context) -> Tensor:
        """Suspicion in the measure's unit; NaN for removed samples."""
        scores = torch.full((len(context.view.roster),), torch.nan)
        live = list(context.live.values())
        scores[[sample.row for sample in live]] = -self._measure(context.view.roster, live).float()
        return scores
