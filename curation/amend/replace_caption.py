"""REPLACECAP: a bad caption gives way to another one of its image (paper, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

from captioning.types import Edit, Sample
from curation.base import AbstractAmender, Amended, Context, Selected


class ReplaceCaption(AbstractAmender):
    """Replaces each selected caption by a random other one of the same image's pool.

    A caption that was found bad leaves its image's pool for good, so it is never chosen again;
    captions found bad in this same decision are not chosen either. Where none is left the sample
    is kept as it is, and its caption stays in the pool. The number of samples never changes.
    """

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """One replacement per selected sample that has a usable sibling."""
        condemned = {context.view.held_id(one.sample.sample_id) for one in selected}
        generator = context.random("replace_caption")
        edits: list[Edit] = []
        kept: list[str] = []
        for one in selected:
            choices = _choices(context, one.sample, condemned)
            # drawn whether or not there is a choice: one sample's luck never shifts another's
            draw = generator.random()
            if not choices:
                kept.append(one.sample.sample_id)
                continue
            edits.append(_replacement(one, choices[int(draw * len(choices))]))
        return Amended(edits=tuple(edits), kept=tuple(kept))


def _choices(context: Context, sample: Sample, condemned: set[str]) -> list[Sample]:
    # equal words under another id would put the bad caption straight back
    return [
        other
        for other in context.view.pool(sample.image_id)
        if other.sample_id not in condemned and other.caption != sample.caption
    ]


def _replacement(one: Selected, source: Sample) -> Edit:
    return Edit(
        sample_id=one.sample.sample_id,
        action="replace_caption",
        value=source.caption,
        origin=f"sibling:{source.sample_id}",
        reason=one.reason,
    )
