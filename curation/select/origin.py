"""Selects by where samples came from, such as photos that came without captions."""

from __future__ import annotations

import torch
from torch import Tensor

from curation.base import AbstractSelector, Context, Selected


class Origin(AbstractSelector):
    """Selects every live sample that the annotations say is of one origin, in roster order.

    Later edits play no part: a caption written for a photo without one can be written anew at the
    next epoch's end.

    Args:
        origin: `Sample.origin` as read, such as ``"unpaired"``.

    Raises:
        ValueError: an empty origin.
    """

    def __init__(self, *, origin: str) -> None:
        if not origin:
            raise ValueError('origin must name where samples came from, such as "unpaired"')
        self.origin = origin

    def scores(self, context: Context) -> Tensor:
        """``(N,)`` 1 for live samples of the origin, 0 for the others; NaN where not live."""
        scores = torch.full((len(context.view.roster),), torch.nan)
        for row in context.live:
            scores[row] = float(context.view.roster.samples[row].origin == self.origin)
        return scores

    def select(self, context: Context) -> list[Selected]:
        """All of them."""
        rows = torch.nonzero(self.scores(context) == 1).flatten().tolist()
        reason = f"of origin {self.origin}"
        return [Selected(sample=context.live[row], reason=reason) for row in rows]
