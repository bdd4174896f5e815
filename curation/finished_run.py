"""Load the curation record and the training set of a run folder.

Data of a run of ``captioning train`` are read again as its config says; one of somebody's own loop
has kept its samples, see `curation.manifest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from captioning.data.readers.own.own import read_own
from captioning.data.readers.own.questions import own_questions
from captioning.data.readers.split_words import Split
from captioning.data.roster import CurationView, Roster
from captioning.results.folder_config import show_outside
from captioning.results.run_folder import RunFolder
from captioning.training.data_checks import check_opened
from captioning.training.rosters import read_roster, read_train, settings_of_run, trains_on_text
from captioning.training.settings import DataSettings
from curation.journal.journal import FILE_NAME as JOURNAL_NAME
from curation.journal.journal import find_journal, made_edits, read_journal
from curation.loop.keep import FILE_NAME, read_keep
from curation.loop.ledger import read_history
from curation.manifest import ROSTER_NAME, is_loop_folder, read_loop_roster, read_manifest
from curation.record import RunRecord, read_records

HELD_OUT: tuple[Split, ...] = ("val", "test")


def read_run(folder: str | Path) -> RunRecord:
    """Read the curation record of a run.

    Raises:
        FileNotFoundError: not a run folder, a run without curation, or missing data.
        ValueError: the journal is damaged, or the data differ from the run's.
    """
    folder = Path(folder)
    journal = find_journal(folder) if is_loop_folder(folder) else None
    if journal is not None:
        roster, policy = read_loop_roster(folder), read_manifest(folder).policy
        photos = dict.fromkeys(str(sample.image_path.parent) for sample in roster.samples)
        show_outside(((str(ROSTER_NAME), photo) for photo in photos if photo != "."), folder)
        truth = roster.planted
    else:
        config = RunFolder(folder).config()
        journal = find_journal(folder)
        settings = DataSettings.of(config)
        roster, context = read_train(settings)
        check_opened(settings, folder, {"train": roster})
        policy, truth = str(config.curation.name), context.truth
    header, edits = read_journal(journal)
    view = made_edits(roster, journal, header, edits)
    return record_of(folder, view, policy=policy, seed=header.seed, truth=truth)


def read_held_out(folder: str | Path) -> dict[Split, Roster]:
    """Read a run's validation and test splits; empty for caption-only runs and user loops.

    Raises:
        ValueError, OSError: the splits cannot be read, or differ from the run's data.
    """
    folder = Path(folder)
    if is_loop_folder(folder):
        return {}
    settings = settings_of_run(folder)
    if trains_on_text(settings):
        return {}
    rosters: dict[Split, Roster] = {}
    for split in HELD_OUT:
        if split in settings.data.splits:
            rosters[split] = _read_held_out(settings, split)
    if rosters:
        check_opened(settings, folder, {**rosters})
    return rosters


def read_asked(folder: str | Path, rosters: Mapping[Split, Roster]) -> dict[Split, dict[str, str]]:
    """Questions about a run's own photos by split and sample id; empty for other data.

    Args:
        folder: the run's folder.
        rosters: rosters of its splits.
    """
    folder, target = Path(folder), f"{read_own.__module__}.{read_own.__name__}"
    if is_loop_folder(folder):
        return {}
    data = RunFolder(folder).config().data
    asked: dict[Split, dict[str, str]] = {}
    for split, roster in rosters.items():
        part = data.get(split)
        if part is not None and part.get("_target_") == target:
            reading: dict[str, Any] = {str(key): value for key, value in part.items()}
            asked[split] = own_questions(reading.pop("folder"), roster, **reading)
    return asked


def _read_held_out(settings: DataSettings, split: Split) -> Roster:
    try:
        return read_roster(settings, split)
    except (OSError, ValueError) as error:
        remedy = "--part train exports the training captions alone"
        raise ValueError(f"data.{split} of the run: {error}; {remedy}") from error


def has_journal(folder: Path) -> bool:
    """Return whether a run used curation, with or without edits."""
    return (folder / JOURNAL_NAME).is_file()


def record_of(
    folder: Path, view: CurationView, *, policy: str, seed: int, truth: Mapping[str, str]
) -> RunRecord:
    """Build the record of a run from its folder's losses and decisions.

    Args:
        folder: the run's folder.
        view: the training set with its edits.
        policy: its name.
        seed: the run's seed.
        truth: kind of planted fault by ``sample_id``.

    Raises:
        ValueError: a file is damaged.
    """
    details = folder / "curation"
    epochs, history = [], np.empty((0, len(view.roster)))
    if (details / "losses.npz").is_file():
        _, epochs, history = read_history(details / "losses.npz")
    records = read_records(details / "epochs.json")
    keep_file = details / FILE_NAME
    return RunRecord(
        policy=policy,
        seed=seed,
        view=view,
        records=records,
        epochs=epochs,
        history=history,
        truth=truth,
        keep=read_keep(keep_file) if keep_file.is_file() else None,
    )
