"""Score whole images, so that all captions of an image are curated together."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from curation.base import Context, Score

How = Literal["mean", "max", "min"]


class PerImage(Score):
    """One score for each image, which all live captions of the image share.

    A selector by ratio may cut through the captions of the last image that it takes; by threshold,
    deviations or mixture it takes whole images.

    Args:
        score: score of single captions.
        how: ``"mean"``, ``"max"`` (one bad caption makes a bad image) or ``"min"`` (an image is as
            good as its best caption, which separates a wrong photo from a wrong caption).

    Raises:
        ValueError: ``how`` is unknown.
    """

    def __init__(self, *, score: Score, how: How = "mean") -> None:
        if how not in get_args(How):
            raise ValueError(f"how must be one of {get_args(How)}: got {how!r}")
        self.score, self.how = score, how
        self.name = f"{how} over the image's captions of {score.name}"

    @property
    def opens_photos(self) -> bool:
        """Whether the caption score opens photos."""
        return self.score.opens_photos

    @property
    def signals(self) -> tuple[str, ...]:
        """Additional measurements that the caption score reads."""
        return self.score.signals

    def scores(self, context: Context) -> Tensor:
        """Image scores; NaN for images without a known caption score, and for removed samples."""
        values = self.score.scores(context).double()
        images: dict[str, int] = {}
        image = torch.tensor(
            [images.setdefault(context.live[r].image_id, len(images)) for r in context.live]
        )
        rows = torch.from_numpy(context.live_rows)
        known = ~torch.isnan(values[rows])
        reduced = torch.full((len(images),), torch.nan, dtype=torch.float64).scatter_reduce(
            0,
            image[known],
            values[rows][known],
            {"mean": "mean", "max": "amax", "min": "amin"}[self.how],
            include_self=False,
        )
        scores = torch.full(values.shape, torch.nan)
        scores[rows] = reduced[image].float()
        return scores
