"""REMOVE: bad samples take no further part in training (data curation paper, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

from captioning.types import Edit
from curation.base import AbstractAmender, Amended, Context, Selected


class Remove(AbstractAmender):
    """Removes every selected sample. The set shrinks; give schedules an explicit horizon."""

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """One removal per selected sample."""
        edits = tuple(
            Edit(
                sample_id=one.sample.sample_id,
                action="remove",
                origin=one.sample.origin,
                reason=one.reason,
            )
            for one in selected
        )
        return Amended(edits=edits)
