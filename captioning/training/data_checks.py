"""Compare a run's data with its record whenever the run is opened again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from captioning.data.batches.settings import Splits
from captioning.data.data_record import (
    FILE_NAME,
    Keys,
    accept_changes,
    check_record,
    copies,
    photo_keys,
    photos_of,
    shown,
    write_record,
)
from captioning.data.roster import Roster
from captioning.results.run_folder import RunFolder
from captioning.training.settings import AbstractDataSettings, TrainSettings

log = logging.getLogger(__name__)


def keys_of(settings: AbstractDataSettings, rosters: Mapping[str, Roster]) -> dict[Path, str]:
    """Content hashes of the rosters' photos by path; empty if features replace the photos."""
    if settings.features.imported:
        return {}
    return photo_keys(rosters.values(), settings.paths.cache)


def rosters_of(splits: Splits) -> dict[str, Roster]:
    """Rosters of a run by split name."""
    rosters = {"train": splits.train, "val": splits.val, "test": splits.test}
    return {split: roster for split, roster in rosters.items() if roster is not None}


def check_opened(
    settings: AbstractDataSettings,
    folder: Path,
    rosters: Mapping[str, Roster],
    *,
    accept: bool | None = None,
) -> None:
    """Raise an error if splits differ from the splits that a run recorded.

    Args:
        settings: the run's settings.
        folder: the run's folder.
        rosters: current rosters by split.
        accept: log changes instead of raising; None: the caller has no such setting.

    Raises:
        ValueError: the data have changed, see `check_record`.
    """
    if (folder / FILE_NAME).is_file():
        check_record(folder, rosters, keys_of(settings, rosters), accept=accept)


def tell_of_trained(settings: AbstractDataSettings, folder: Path, roster: Roster) -> None:
    """Warn if photos of other data are among those that a run was trained on."""
    found = copies(photos_of(folder), roster, keys_of(settings, {"": roster}))
    if found:
        log.warning(
            f"{len(found)} of {len(roster.rows_by_image)} photos of {roster.name} were training "
            f"photos of {folder} ({shown(found)}): scores will be too good"
        )


def begin_with(settings: TrainSettings, run: RunFolder, splits: Splits) -> None:
    """Record a new run's data, or compare a resumed run's data with its record; look for leaks.

    Args:
        settings: the run's settings.
        run: the run's folder, opened with these settings.
        splits: the splits that training reads.

    Raises:
        ValueError: the data have changed, or photos of validation or test were trained on by the
            run that ``start_from`` names.
    """
    rosters = rosters_of(splits)
    keys = keys_of(settings, rosters)
    if not run.has_results():
        write_record(run.path, rosters, keys)
    elif check_record(run.path, rosters, keys, accept=settings.data.accept_changes):
        accept_changes(run.path, rosters, keys)
    run.follow()
    _refuse_leaks(settings, rosters, keys)
    _warn_of_copies(rosters, keys)


def _refuse_leaks(settings: TrainSettings, rosters: Mapping[str, Roster], keys: Keys) -> None:
    """Raise an error if test photos were training photos of the captioner in ``start_from``."""
    start = settings.start_from
    if not start or not Path(start).is_dir():
        return
    trained = photos_of(Path(start))
    for split in ("val", "test"):
        found = copies(trained, rosters[split], keys) if split in rosters else {}
        if not found:
            continue
        problem = (
            f"start_from={start}: {len(found)} of {len(rosters[split].rows_by_image)} {split} "
            f"photos were training photos of that run ({shown(found)}), so scores would be too good"
        )
        if not settings.data.accept_changes:
            raise ValueError(
                f"{problem}: use the splits of that run (the same data.seed and data.held_out), or "
                "start from another captioner; data.accept_changes=true trains anyway"
            )
        log.warning(problem)


def _warn_of_copies(rosters: Mapping[str, Roster], keys: Keys) -> None:
    """Warn of validation and test photos that the training set contains, too."""
    train = rosters["train"]
    trained = {
        key: sample.image_id for sample in train.samples if (key := keys.get(sample.image_path))
    }
    for split in ("val", "test"):
        found = copies(trained, rosters[split], keys) if split in rosters else {}
        if found:
            pairs = [f"{image_id} is {other}" for image_id, other in found.items()]
            log.warning(
                f"{len(found)} of {len(rosters[split].rows_by_image)} {split} photos are also "
                f"training photos ({shown(pairs)}): scores will be too good; remove them from "
                f"one of the two (`captioning check` lists copies)"
            )
