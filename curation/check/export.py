"""The set without what checks flagged, with journal and card."""

from __future__ import annotations

from pathlib import Path

from captioning.data.roster import CurationView
from curation.check.result import POLICY, CheckResult
from curation.export.export import PACKED, export
from curation.record import RunRecord


def export_cleaned(
    result: CheckResult,
    folder: str | Path,
    *,
    format: str,
    photos: str | None = None,
    seed: int = 0,
) -> int:
    """Write the captions that no check flags; returns their number.

    Args:
        result: of a check.
        folder: new or empty.
        format: one of `curation.export.export.FORMATS`.
        photos: ``"copy"``, ``"link"`` or ``"none"``; None: as the format needs.
        seed: of the check, for the journal.

    Raises:
        ValueError: every caption is flagged, the folder holds something, or the format needs
            photos.
        OSError: the folder cannot be written.
    """
    view = CurationView(roster=result.roster).apply(result.edits())
    record = RunRecord(policy=POLICY, seed=seed, view=view)
    holds_photos = format == "imagefolder" or format in PACKED
    chosen = photos or ("copy" if holds_photos else "none")
    return export(record, None, Path(folder), format=format, photos=chosen)
