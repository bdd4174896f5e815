"""REMOVE: remove bad samples from training (data curation paper, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

from curation.base import Amended, Amender, Context, Selected


class Remove(Amender):
    """Removes every selected sample. The set shrinks; give schedules an explicit horizon."""

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """Return one removal for each selected sample."""
        return Amended(edits=tuple(context.edit(candidate, "remove") for candidate in selected))
