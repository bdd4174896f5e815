"""Score samples by their loss history: learnt late, forgotten, or never learnt."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from curation.base import Context, Score

Kind = Literal["area", "forgetting", "hard_to_learn"]


class LossHistory(Score):
    """Suspicion from all epochs in which a sample had its present caption and image.

    With one epoch all kinds but ``forgetting`` rank as the loss does.

    - ``area``: mean over the epochs of the loss less the epoch's median. Pleiss et al. (2020) add
      up margins of a classifier over epochs; a caption has no margin, its loss takes that place,
      and the median stands for what was usual at the time.
    - ``forgetting``: how often the loss rose from one epoch to the next while the median fell, as
      Toneva et al. (2019) count answers that were right before; ties are broken by ``area``.
    - ``hard_to_learn``: low confidence that varies little, the corner of the data map (Swayamdipta
      et al., 2020) where wrong labels lie: ``1 - mean(p) - std(p)`` over the epochs, ``p`` the
      mean probability of a token, ``exp(-loss)``.

    Args:
        kind: one of these.

    Raises:
        ValueError: ``kind`` is unknown.
    """

    def __init__(self, *, kind: Kind = "area") -> None:
        if kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {get_args(Kind)}: got {kind!r}")
        self.kind = kind
        self.name = f"loss history ({kind})"

    def scores(self, context: Context) -> Tensor:
        """Suspicion; NaN for removed samples and for pairs that were never seen."""
        history = context.of_present_pairs(context.history)
        if self.kind == "hard_to_learn":
            certainty = torch.exp(-history)
            mean = certainty.nanmean(0)
            return 1 - mean - (certainty - mean).square().nanmean(0).sqrt()
        # the median over all pairs of an epoch is that epoch's usual loss
        centred = history - context.history.nanmedian(1, keepdim=True).values
        area = centred.nanmean(0)
        if self.kind == "area":
            return area
        rose = (centred[1:] > centred[:-1]) & (history[1:] > history[:-1])
        # areas lie within a few nats: squeezed into less than one forgetting
        return rose.sum(0) + torch.sigmoid(area)
