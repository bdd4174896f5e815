"""Score how badly captions fit their photos, by a separately trained model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from captioning.types import UNPAIRED, Sample
from curation.base import Context, Score


class FitScores(Protocol):
    """Scores of photo-caption pairs, such as `captioning.vision.pair_scores.PairScores`."""

    @property
    def name(self) -> str:
        """Name of the measured quantity."""
        ...

    @property
    def is_probability(self) -> bool:
        """Whether the scores are probabilities of a match."""
        ...

    def scores(self, pairs: Sequence[tuple[Path, str]]) -> Tensor:
        """Score the pairs; returns ``(N,) float32``."""
        ...

    def release(self) -> None:
        """Free the GPU for training."""
        ...


class CaptionFit(Score):
    """Misfit of a caption to its photo: 1 minus the match probability, or minus the cosine.

    Photos that wait for a caption (origin `UNPAIRED`) have no score.

    Args:
        pairs: scores of pairs.
    """

    def __init__(self, *, pairs: FitScores) -> None:
        self._pairs = pairs
        self.name = f"1 - {pairs.name}" if pairs.is_probability else f"minus {pairs.name}"

    def scores(self, context: Context) -> Tensor:
        """Suspicion in [0, 1] for probabilities, [-1, 1] for cosines; NaN for removed samples."""
        scores = torch.full((len(context.view.roster),), torch.nan)
        live = [sample for sample in context.live.values() if not waits_for_caption(sample)]
        if live:
            fit = self._pairs.scores([(sample.image_path, sample.caption) for sample in live])
            scores[[sample.row for sample in live]] = misfit(fit, self._pairs)
            self._pairs.release()
        return scores


def misfit(fit: Tensor, pairs: FitScores) -> Tensor:
    """Convert scores of pairs to suspicion, ``(N,)``."""
    return 1 - fit if pairs.is_probability else -fit


def waits_for_caption(sample: Sample) -> bool:
    """Return whether a sample still has a placeholder for its caption."""
    return sample.origin == UNPAIRED
