"""The curation of a run folder, with its training set read again as the run read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from captioning.data.roster import CurationView
from captioning.files import read_json
from captioning.results.run_folder import RunFolder
from captioning.training.rosters import read_train
from curation.journal.journal import find_journal, read_journal
from curation.loop.keep import FILE_NAME, read_keep
from curation.loop.ledger import read_history
from curation.record import RunRecord


def read_run(folder: str | Path) -> RunRecord:
    """What curation did in a run.

    Raises:
        FileNotFoundError: not a run folder, a run without curation, or its data are not there.
        ValueError: the journal is damaged or the data are no longer those of the run.
    """
    folder = Path(folder)
    config = RunFolder(folder).config()
    journal = find_journal(folder)
    header, edits = read_journal(journal)
    roster, context = read_train(config)
    header.check(roster, str(journal))
    details = folder / "curation"
    epochs, history = [], np.empty((0, len(roster)))
    if (details / "losses.npz").is_file():
        _, epochs, history = read_history(details / "losses.npz")
    records = read_json(details / "epochs.json") if (details / "epochs.json").is_file() else []
    keep_file = details / FILE_NAME
    return RunRecord(
        policy=str(config.curation.name),
        seed=header.seed,
        view=CurationView(roster=roster, image_root=folder).apply(edits),
        records=records,
        epochs=epochs,
        history=history,
        truth=context.truth,
        keep=read_keep(keep_file) if keep_file.is_file() else None,
    )
