"""The set without what checks flagged, with journal and card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from captioning.data.roster import CurationView
from curation.check.mend import left_unmended, mendable
from curation.check.result import POLICY, CheckResult
from curation.export.export import HOLD_PHOTOS, export
from curation.export.tool_files import Style
from curation.record import RunRecord


def export_cleaned(
    result: CheckResult,
    folder: str | Path,
    *,
    format: str,
    photos: str | None = None,
    mend: Literal["words"] | None = None,
    seed: int = 0,
    style: Style | None = None,
) -> int:
    """Write the captions that no check flags; returns their number.

    Args:
        result: of a check.
        folder: new or empty.
        format: one of `curation.export.export.FORMATS`.
        photos: ``"copy"``, ``"link"`` or ``"none"``; None: as the format needs.
        mend: ``"words"`` keeps captions in which nothing but one word is surely wrong, with the
            word replaced, see `curation.check.mend.mendable`.
        seed: of the check, for the journal.
        style: of formats that have several forms; None: the plain ones.

    Raises:
        ValueError: every caption is flagged, the folder holds something, the format needs photos,
            or words that shall be mended were not judged.
        OSError: the folder cannot be written.
    """
    mended, left = {}, {}
    if mend == "words":
        mended, left = mendable(result), left_unmended(result)
        print(_mending_line(len(mended), left))
    view = CurationView(roster=result.roster).apply(result.edits(mended, left))
    record = RunRecord(policy=POLICY, seed=seed, view=view)
    chosen = photos or ("copy" if format in HOLD_PHOTOS else "none")
    style = replace(style or Style(), questions=result.questions)
    return export(
        record, None, Path(folder), format=format, photos=chosen, splits=result.splits, style=style
    )


def _mending_line(count: int, left: Mapping[int, str]) -> str:
    """How many words were replaced, and why others were not."""
    line = f"words replaced: {count:,}"
    if left:
        reasons = "; ".join(dict.fromkeys(list(left.values())[:3]))
        line += f"; {len(left):,} flagged captions were not mended and are left out ({reasons}"
        line += "; the journal has all reasons)"
    return line
