"""The set as people corrected it, with journal and card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from captioning.data.readers.split_words import Split
from captioning.data.roster import CurationView, Roster
from curation.check.check_files import HELD_OUT, draw_splits
from curation.check.folder_check import read_all, read_questions, read_splits
from curation.export.export import export
from curation.export.tool_files import Style
from curation.finished_run import read_asked, read_held_out, read_run
from curation.journal.journal import FILE_NAME
from curation.record import RunRecord
from curation.review.suspects.label_studio import POLICY, read_label_studio


def write_corrected(
    decisions: str | Path,
    source: str | Path,
    folder: str | Path,
    *,
    format: str,
    photos: str,
    style: Style | None = None,
    part: Literal["all", "train"] = "all",
    held_out: float = HELD_OUT,
    keys_folder: str | Path | None = None,
) -> dict[str, int]:
    """Write a set with what people decided in Label Studio.

    Of a run, its own edits stay where nobody judged the caption.

    Args:
        decisions: JSON that Label Studio exported.
        source: the folder that was checked, or the run.
        folder: new or empty.
        format: one of `curation.export.export.FORMATS`.
        photos: one of `curation.export.export.PHOTOS`.
        style: of formats that have several forms; None: the plain ones.
        part: of a run: ``"all"`` writes its val and test, too, which are not changed.
        held_out, keys_folder: of a folder without splits, see `draw_splits`.

    Returns:
        Counts of what was decided (``"keep"`` and actions of edits), and the captions left
        (``"left"``).

    Raises:
        FileNotFoundError, ValueError, OSError: see `read_label_studio` and `export`.
    """
    run = Path(source) if (Path(source) / FILE_NAME).is_file() and _is_run(Path(source)) else None
    style = style or Style()
    style.check(format)
    if run is None:
        view = CurationView(roster=read_all(source))
        style = replace(style, questions=read_questions(source, view.roster))
        record = RunRecord(policy=POLICY, seed=0, view=view)
    else:
        record = read_run(run)
    epoch = max((edit.epoch for edit in record.view.journal), default=-1)
    decided = read_label_studio(decisions, record.view.roster, epoch=epoch)
    kept = [edit for edit in record.view.journal if edit.sample_id not in decided]
    people = [edit for edit in decided.values() if edit is not None]
    view = replace(record.view, journal=()).apply([*kept, *people])
    record = replace(record, policy=POLICY, view=view)
    splits, told, beside = {}, "", {}
    if run is None:
        splits, told = draw_splits(view, read_splits(source), held_out, keys_folder)
    elif part == "all" and format != "journal":
        beside = read_held_out(run)
    if run is not None and format == "messages":
        rosters: dict[Split, Roster] = {"train": view.roster, **beside}
        style = style.asking(read_asked(run, rosters))
    count = export(
        record, run, Path(folder), format=format, photos=photos, by_people=True, splits=splits,
        style=style, about_splits=told, beside=beside,
    )  # fmt: skip
    actions = ["keep" if edit is None else edit.action for edit in decided.values()]
    return {**{name: actions.count(name) for name in dict.fromkeys(actions)}, "left": count}


def _is_run(folder: Path) -> bool:
    return (folder / "config.yaml").is_file() or (folder / "curation").is_dir()
