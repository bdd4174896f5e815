"""REPLACECAP: a bad caption gives way to another one of its image (paper, section 3.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from captioning.types import Edit, Sample
from curation.base import AbstractAmender, Amended, Context, Selected

CHOICES = ("random", "lower_loss")
AVOIDED = ("selected", "worse")


class ReplaceCaption(AbstractAmender):
    """Replaces each selected caption by another one of the same image's pool.

    A caption that was found bad leaves its image's pool for good and is never chosen again. If no
    caption remains, the sample stays as it is, and its caption stays in the pool. The number of
    samples never changes.

    Args:
        choice: ``"random"``, as in the paper, or ``"lower_loss"``: the one with the lowest loss in
            this epoch, if that is lower than the selected one's.
        avoid: of the captions selected at the same time: all of them, or with ``"worse"`` only
            those that are worse than the one to be replaced, as in the authors' code, which takes
            them out of the pool one by one, the worst first.

    Raises:
        ValueError: an unknown value.
    """

    amends_at_once = True

    def __init__(
        self,
        *,
        choice: Literal["random", "lower_loss"] = "random",
        avoid: Literal["selected", "worse"] = "selected",
    ) -> None:
        if choice not in CHOICES:
            raise ValueError(f"choice must be one of {CHOICES}: got {choice!r}")
        if avoid not in AVOIDED:
            raise ValueError(f"avoid must be one of {AVOIDED}: got {avoid!r}")
        self.choice, self.avoid = choice, avoid

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """One replacement per selected sample that has a usable sibling."""
        held_ids = [context.view.held_id(candidate.sample.sample_id) for candidate in selected]
        rejected_ids = set(held_ids) if self.avoid == "selected" else set()
        generator = context.random("replace_caption")
        edits: list[Edit] = []
        unchanged: list[str] = []
        for candidate, held_id in zip(selected, held_ids, strict=True):
            rejected_ids.add(held_id)
            choices = _choices(context, candidate.sample, rejected_ids)
            if self.choice == "lower_loss":
                choices = _lowest(context, candidate.sample, choices)
            # drawn whether or not there is a choice: one sample's luck never shifts another's
            draw = generator.random()
            if not choices:
                unchanged.append(candidate.sample.sample_id)
                continue
            source = choices[int(draw * len(choices))]
            edits.append(
                context.edit(
                    candidate,
                    "replace_caption",
                    value=source.caption,
                    origin=f"sibling:{source.sample_id}",
                )
            )
        return Amended(edits=tuple(edits), unchanged=tuple(unchanged))


def _choices(context: Context, sample: Sample, rejected_ids: set[str]) -> list[Sample]:
    # equal words under another id would put the bad caption straight back
    return [
        other
        for other in context.view.pool(sample.image_id)
        if other.sample_id not in rejected_ids and other.caption != sample.caption
    ]


def _lowest(context: Context, sample: Sample, choices: list[Sample]) -> list[Sample]:
    """The choice with the lowest loss, if that is lower than the sample's; otherwise none.

    A loss counts only while its sample still holds that caption: the loss of a sample with another
    caption or picture says nothing about this one.
    """
    losses = context.losses
    known = {
        other.row: float(losses[other.row])
        for other in choices
        if context.live.get(other.row) == other and not math.isnan(losses[other.row])
    }
    best = min(choices, key=lambda other: known.get(other.row, math.inf), default=None)
    if best is None or not known.get(best.row, math.inf) < float(losses[sample.row]):
        return []
    return [best]
