"""Score captions by length: captions that are much longer than others get high scores."""

from __future__ import annotations

import torch
from torch import Tensor

from curation.base import Context, Score


class Length(Score):
    """Number of words in a caption, split at white space."""

    name = "words"

    def scores(self, context: Context) -> Tensor:
        """Word counts; NaN for removed samples."""
        scores = torch.full((len(context.view.roster),), torch.nan)
        for row, sample in context.live.items():
            scores[row] = len(sample.caption.split())
        return scores
