"""Read a finished run for its report; skip unreadable parts and note them."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from captioning.data.roster import CurationView, Roster
from captioning.results.coco_results import read_results
from captioning.results.runs import (
    CONFIG,
    DETECTION,
    METRICS,
    TIMING,
    VERSIONS,
    Run,
    as_number,
    read_content,
    runs_below,
)
from captioning.runtime.files import read_json
from captioning.training.data_checks import check_opened
from captioning.training.rosters import read_roster, read_train, settings_of_run
from curation.finished_run import has_journal, read_run, record_of
from curation.loop.ledger import read_history
from curation.loop.planted_faults import load_truth
from curation.manifest import TRUTH_NAME, is_loop_folder, is_run_folder
from curation.record import RunRecord

LOG = "logs/csv/metrics.csv"
# Errors from reading a damaged file, or from using its content.
DAMAGE = (ValueError, OSError, TypeError, LookupError, AttributeError)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Rosters:
    """Training and test datasets of a run.

    Attributes:
        train: training data with the run's edits.
        test: None: the run has no test.
    """

    train: CurationView
    test: Roster | None


@dataclass(kw_only=True)
class Notes:
    """Parts of a run folder that are missing on its page, with one line for each part."""

    lines: list[str] = field(default_factory=list)

    def read(self, part: str, folder: Path, read: Callable[[], T], default: T) -> T:
        """Return the result of ``read``; if the part is damaged, add a note and return the default.

        Args:
            part: name of the part, for the line.
            folder: the run's folder. The line's first file is named relative to it; a command as
                remedy names the full path.
            read: reads it.
            default: taken in its place.
        """
        try:
            return read()
        except DAMAGE as error:
            reason = str(error) if isinstance(error, ValueError | OSError) else repr(error)
            reason = " ".join(reason.split()).replace(f"{folder}/", "", 1)
            self.lines.append(f"{part} left out: {reason}")
            return default


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """All data of a run that its page shows.

    Attributes:
        run: config, versions, scores and times; empty if missing.
        history: validation scores by epoch.
        start: validation scores of the initial model, before the first epoch; empty: not scored.
        losses: ``(step, loss)`` of training, as they were logged.
        predictions: caption by image of the test.
        dropped: items that the rosters leave out: ``item`` and ``rule`` by roster.
        record: the record of curation; None without curation.
        unit: unit of the losses in ``record``.
        train: captions that were trained on, before curation.
        test: photos and references of the test.
        notes: one line for each omission.
    """

    run: Run
    history: Sequence[Mapping[str, Any]]
    start: Mapping[str, float]
    losses: Sequence[tuple[float, float]]
    predictions: Mapping[str, str]
    dropped: Mapping[str, Sequence[Mapping[str, str]]]
    record: RunRecord | None
    unit: str
    train: Roster | None
    test: Roster | None
    notes: Sequence[str]

    @property
    def name(self) -> str:
        """Name of the run in the config, or the name of its folder."""
        return str(self.run.config.get("run_name") or self.run.folder.name)

    @property
    def seed(self) -> str:
        """Seed of the run."""
        of_journal = "unknown" if self.record is None else str(self.record.seed)
        return self.run.setting("seed") or of_journal


def read_finished_run(folder: Path, rosters: Rosters | None = None) -> FinishedRun:
    """Read all readable parts of a run's folder.

    Args:
        folder: folder of the run, or of a user's own loop.
        rosters: rosters of the run; None: read the data again.

    Raises:
        FileNotFoundError: not a run folder.
    """
    if not is_run_folder(folder):
        raise FileNotFoundError(f"{folder} is not a run folder: it has no {CONFIG}")
    notes = Notes()
    run = _run(folder, notes)
    view, test, record = _rosters(folder, run, rosters, notes)
    record, unit = _with_sums(folder, record, notes)
    return FinishedRun(
        run=run,
        history=notes.read("validation", folder, lambda: _history(folder), ()),
        start=notes.read("score before training", folder, lambda: _start(folder), {}),
        losses=notes.read("training loss", folder, lambda: _losses(folder / LOG), ()),
        predictions=notes.read("predictions", folder, lambda: _predictions(folder), {}),
        dropped=notes.read("dropped data", folder, lambda: _dropped(folder), {}),
        record=record,
        unit=unit,
        train=None if view is None else view.roster,
        test=test,
        notes=tuple(notes.lines),
    )


def _run(folder: Path, notes: Notes) -> Run:
    def content(name: str, kind: type, valid: Callable[[Any], bool] = bool) -> Any:
        def read() -> Any:
            value = read_content(folder / name)
            if not isinstance(value, kind) or not valid(value):
                raise ValueError(f"{name} is damaged: its content is invalid")
            return value

        return notes.read(name, folder, read, kind()) if (folder / name).is_file() else kind()

    timing = content(TIMING, dict, lambda value: _are_mappings(value.get("epochs")))
    return Run(
        folder=folder,
        config=content(CONFIG, dict),
        versions=content(VERSIONS, dict),
        metrics=content(METRICS, dict, _are_scores),
        detection=tuple(content(DETECTION, list, _are_mappings)),
        timing=tuple(timing.get("epochs", ())),
        files={},
    )


def _are_mappings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


def _are_scores(metrics: dict[str, Any]) -> bool:
    """Return whether all test scores are numbers."""
    test = metrics.get("test", {"corpus": {}})
    corpus = test.get("corpus") if isinstance(test, dict) else None
    images = (test.get("per_image") or {}) if isinstance(test, dict) else None
    if not isinstance(corpus, dict) or not isinstance(images, dict):
        return False
    return all(
        isinstance(scores, dict) and all(as_number(v) is not None for v in scores.values())
        for scores in (corpus, *images.values())
    )


def _rosters(
    folder: Path, run: Run, rosters: Rosters | None, notes: Notes
) -> tuple[CurationView | None, Roster | None, RunRecord | None]:
    if rosters is not None:
        record = notes.read("curation", folder, lambda: _kept(folder, run, rosters), None)
        return rosters.train, rosters.test, record
    record, loop = None, is_loop_folder(folder)
    if has_journal(folder):
        record = notes.read("curation", folder, lambda: read_run(folder), None)
    if record is not None or loop:
        view = None if record is None else record.view
    else:
        view = notes.read("training data", folder, lambda: _view(folder), None)
    if loop:
        return view, None, record
    return view, notes.read("test photos", folder, lambda: _test(folder), None), record


def _kept(folder: Path, run: Run, rosters: Rosters) -> RunRecord | None:
    """Read the curation record of a run that has just ended."""
    if not has_journal(folder):
        return None
    truth = folder / TRUTH_NAME
    return record_of(
        folder,
        rosters.train,
        policy=run.setting("curation.name") or "",
        seed=int(run.config["seed"]),
        truth=load_truth(truth if truth.is_file() else None),
    )


def _view(folder: Path) -> CurationView:
    settings = settings_of_run(folder)
    roster, _ = read_train(settings)
    check_opened(settings, folder, {"train": roster})
    return CurationView(roster=roster)


def _test(folder: Path) -> Roster | None:
    settings = settings_of_run(folder)
    if settings.data.test is None:
        return None
    roster = read_roster(settings, "test")
    check_opened(settings, folder, {"test": roster})
    return roster


def _with_sums(
    folder: Path, record: RunRecord | None, notes: Notes
) -> tuple[RunRecord | None, str]:
    """Return the record with the losses that its policy used, and their unit."""
    path = folder / "curation" / "summed_loss.npz"
    by_token = "loss of the caption (nats a token)"
    if record is None or not path.is_file():
        return record, by_token
    saved = notes.read("summed losses", folder, lambda: read_history(path)[1:], None)
    if saved is None or saved[1].shape[1] != len(record.view.roster):
        return record, by_token
    epochs, history = saved
    return replace(record, epochs=epochs, history=history), "loss of the caption (nats)"


def _history(folder: Path) -> list[dict[str, Any]]:
    path = folder / "history.json"
    history = read_json(path, list) if path.is_file() else []
    for entry in history:
        if as_number(entry["epoch"]) is None:
            raise ValueError(f"history.json is damaged: the epoch is {entry['epoch']!r}")
        for name, value in entry.items():
            if name != "samples" and not isinstance(value, int | float | None):
                raise ValueError(f"history.json is damaged: {name} is {value!r}")
    return history


def _start(folder: Path) -> dict[str, float]:
    path = folder / "start.json"
    if not path.is_file():
        return {}
    scores = read_json(path, dict)["scores"]
    if any(as_number(value) is None for value in scores.values()):
        raise ValueError(f"start.json is damaged: scores is {scores!r}")
    return dict(scores)


def _losses(path: Path) -> list[tuple[float, float]]:
    """Step and loss of each log line with a loss."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = [(row["step"], row.get("train/loss")) for row in csv.DictReader(file)]
    points = [(float(step), float(loss)) for step, loss in rows if step and loss]
    return [point for point in points if all(map(math.isfinite, point))]


def _predictions(folder: Path) -> dict[str, str]:
    path = folder / "predictions.json"
    captions = read_results(path) if path.is_file() else {}
    return {image_id: several[0] for image_id, several in captions.items()}


def _dropped(folder: Path) -> dict[str, list[dict[str, str]]]:
    path = folder / "dropped.json"
    dropped = read_json(path, dict) if path.is_file() else {}
    return {
        str(name): [{"item": str(entry["item"]), "rule": str(entry["rule"])} for entry in entries]
        for name, entries in dropped.items()
    }


def find_runs(sources: Sequence[Path]) -> list[Path]:
    """Find run folders in these folders and their subfolders, without repeats and in order.

    Raises:
        FileNotFoundError: a folder does not exist, or holds no run.
    """
    folders: list[Path] = []
    for source in sources:
        below = [source] if is_run_folder(source) else runs_below(source)
        if not below:
            reason = f"no {CONFIG} in it or below" if source.is_dir() else "no such folder"
            raise FileNotFoundError(f"{source} is not a run folder: {reason}")
        folders += below
    return list(dict.fromkeys(folder.resolve() for folder in folders))
