"""Combine several scores into one score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import torch
from torch import Tensor

from captioning.config.ranges import PositiveFloat
from curation.base import Context, Score

Scale = Literal["std", "rank"]


class Joint(Score):
    """Weighted mean of several scores of the live samples, on a common scale.

    Args:
        parts: scores by name.
        weights: weights of the parts by the same names; 1 each by default.
        scale: ``"std"``, distances from the mean in standard deviations, which keeps how far off
            the worst are; or ``"rank"``, ranks in [0, 1], which outliers cannot move.

    Raises:
        ValueError: fewer than two parts, weights that are not positive or of other names, or
            another scale.
    """

    def __init__(
        self,
        *,
        parts: Mapping[str, Score],
        weights: Mapping[str, PositiveFloat] | None = None,
        scale: Scale = "std",
    ) -> None:
        if scale not in get_args(Scale):
            raise ValueError(f"scale must be one of {get_args(Scale)}: got {scale!r}")
        if len(parts) < 2:
            raise ValueError(f"a joint score needs at least two parts: got {sorted(parts)}")
        weights = dict.fromkeys(parts, 1.0) if weights is None else dict(weights)
        if weights.keys() != parts.keys() or not all(value > 0 for value in weights.values()):
            raise ValueError(f"each of {sorted(parts)} needs one positive weight: got {weights}")
        self.parts, self.weights, self.scale = dict(parts), weights, scale
        self.name = "joint score of " + " and ".join(parts)

    @property
    def opens_photos(self) -> bool:
        """Whether one of the parts opens photos."""
        return any(part.opens_photos for part in self.parts.values())

    @property
    def signals(self) -> tuple[str, ...]:
        """Additional measurements that the parts read."""
        return tuple(dict.fromkeys(name for part in self.parts.values() for name in part.signals))

    def scores(self, context: Context) -> Tensor:
        """Weighted means; NaN if a part is unknown or the sample was removed."""
        total = sum(self.weights.values())
        scaled = standardised if self.scale == "std" else ranked
        weighted = [
            self.weights[name] / total * scaled(context.of_live(part.scores(context)))
            for name, part in self.parts.items()
        ]
        return torch.stack(weighted).sum(0)


def standardised(scores: Tensor) -> Tensor:
    """Z-scores, ``(N,) float32``, of the known scores.

    All are 0 if the scores are equal; NaN stays NaN.
    """
    known = scores[~torch.isnan(scores)].double()
    if len(known) < 2 or known.std() == 0:
        return scores.float() * 0
    return ((scores.double() - known.mean()) / known.std()).float()


def ranked(scores: Tensor) -> Tensor:
    """Ranks ``(N,) float32`` in [0, 1] of the known scores; ties share a rank, NaN stays NaN."""
    known = ~torch.isnan(scores)
    values, places, counts = torch.unique(scores[known], return_inverse=True, return_counts=True)
    if len(values) == 0:
        return scores.float()
    middle = counts.cumsum(0).double() - (counts.double() + 1) / 2
    ranks = torch.full(scores.shape, torch.nan)
    ranks[known] = (middle / max(1, int(known.sum()) - 1)).float()[places]
    return ranks


class WithinImage(Score):
    """A caption's score minus the mean score of the image's other captions.

    The difficulty of the whole image is subtracted; the caption that stands out remains. An image
    with one live caption has nothing to compare with, and no score.

    Args:
        score: score of single captions.
    """

    def __init__(self, *, score: Score) -> None:
        self.score = score
        self.name = f"{score.name} above the image's other captions"

    @property
    def opens_photos(self) -> bool:
        """Whether the caption score opens photos."""
        return self.score.opens_photos

    @property
    def signals(self) -> tuple[str, ...]:
        """Additional measurements that the caption score reads."""
        return self.score.signals

    def scores(self, context: Context) -> Tensor:
        """Score differences; NaN if the caption's score or all other scores are unknown."""
        values = self.score.scores(context).double()
        rows = torch.from_numpy(context.live_rows)
        rows = rows[~torch.isnan(values[rows])]
        scores = torch.full(values.shape, torch.nan)
        if len(rows) == 0:
            return scores
        images: dict[str, int] = {}
        image = torch.tensor(
            [images.setdefault(context.live[r].image_id, len(images)) for r in rows.tolist()]
        )
        total = torch.zeros(len(images), dtype=torch.float64).index_add_(0, image, values[rows])
        count = torch.bincount(image, minlength=len(images))
        num_others = (count[image] - 1).clamp(min=0)
        mean = (total[image] - values[rows]) / num_others  # 0 / 0 where there is no other
        scores[rows] = (values[rows] - mean).float()
        return scores
