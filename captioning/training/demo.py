"""Demo: train on generated scenes with faulty captions, once with and once without curation.

Run by ``make demo``, or ``captioning demo [key=value ...]``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rich
from omegaconf import OmegaConf
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from captioning.config.compose import compose_config
from captioning.evaluation.compare import Comparison, Side, compare_runs, short, verdict
from captioning.results.run_folder import RunFolder
from captioning.runtime.files import read_json
from captioning.training.inputs import load_pictures, read_splits
from captioning.training.preflight import check_settings, settings_of
from captioning.training.run import Finished, train
from captioning.training.settings import TrainSettings

WITHOUT, WITH = "without curation", "with curation"
POLICIES = {WITHOUT: "curation=track", WITH: "curation=recommended"}
METHODS = {
    WITHOUT: "train on all captions, wrong ones too.",
    WITH: "drop likely wrong captions, then train on the rest.",
}
METRIC = "CIDEr-D"
Page = Callable[[Comparison, str, Path], None]


def main(overrides: list[str], page: Page, finished: Finished | None = None) -> Path:
    """Train with each policy, print the test scores side by side, and compare the captions.

    Finished runs are not repeated, and a stopped run resumes. The output fits into 22 lines of 80
    columns, as progress lines are erased.

    Args:
        overrides: overrides as of ``captioning train``.
        page: writes the page of a comparison and a sentence on the removed captions to a file.
        finished: see `captioning.training.run.train`.

    Returns:
        Path of the page.

    Raises:
        PermissionError: a folder of runs or of the cache cannot be written.
        ValueError: settings that a training refuses.
    """
    console = Console(soft_wrap=True, highlight=False)
    settings = {name: _settings(choice, overrides) for name, choice in POLICIES.items()}
    folders = {name: Path(of_run.run_dir) for name, of_run in settings.items()}
    _check_folders(settings[WITH])
    for of_run in settings.values():
        check_settings(of_run)
    _prepare(console, settings[WITHOUT])
    scores: dict[str, Mapping[str, float]] = {}
    for number, (name, of_run) in enumerate(settings.items(), start=1):
        console.print(f"[bold]Run {number} of {len(settings)}, {name}[/]: {METHODS[name]}")
        if of_run.resume != "never" and RunFolder(folders[name]).finished():
            console.print("  finished before (resume=never trains it from scratch)", markup=False)
        scores[name] = train(of_run, finished)
    summary = removed(folders[WITH])
    console.print(f"  {summary}", markup=False)
    console.print(score_table(scores))
    sides = [Side(name=name, folders=[folder]) for name, folder in folders.items()]
    compared = compare_runs(*sides, metrics=[METRIC])
    compared.facts["sentences"] = [gain(compared)]
    console.print(gain(compared), markup=False)
    console.print(f"Each edit with its reason: {folders[WITH]}/curation/report.html", markup=False)
    path = folders[WITH].parent.parent / f"compared_{folders[WITH].name}.html"
    page(compared, summary, path)
    return path


def _settings(choice: str, overrides: Sequence[str]) -> TrainSettings:
    config = compose_config("train", ["experiment=demo", choice, *overrides])
    OmegaConf.resolve(config)
    return settings_of(config)


def _check_folders(settings: TrainSettings) -> None:
    """Raise an error if the folders of runs or of the cache cannot be created or written."""
    for key, folder in (("runs", settings.run_dir), ("cache", settings.paths.cache)):
        parent = Path(folder).absolute()
        while not parent.exists():
            parent = parent.parent
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            raise PermissionError(
                f"{parent} cannot be written, and the demo saves images, features and runs: start "
                f"it in another folder, or set paths.{key}=FOLDER"
            )


def _prepare(console: Console, settings: TrainSettings) -> None:
    """Draw the images, plant the faults and compute the features, printing each step."""
    with _spinning(console, "drawing images"):
        splits, steps = read_splits(settings)
    train_set, held_out = splits.train, [splits.val, *([splits.test] if splits.test else [])]
    num_images = len(train_set.rows_by_image)
    others = sum(len(roster.rows_by_image) for roster in held_out)
    console.print(
        f"[bold]Data[/]: {settings.data.name}, {num_images:,} training images with "
        f"{len(train_set):,} captions, {others:,} images held out."
    )
    share = len(steps.truth) / len(train_set)
    console.print(
        f"[bold]Faults[/]: {len(steps.truth):,} of the training captions ({share:.0%}) are swapped "
        "between images, so wrong.\n"
        "[bold]Why[/]: a captioner learns from wrong captions as well, and its score drops."
        if steps.truth
        else "[bold]Faults[/]: none are planted."
    )
    with _spinning(console, f"features of {num_images + others:,} images, once for both runs"):
        load_pictures(settings.features, splits.pictured)


@contextmanager
def _spinning(console: Console, work: str) -> Iterator[None]:
    """Show a line with the elapsed time while work runs, and hide other progress bars."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    rich.reconfigure(quiet=True)
    try:
        with Progress(*columns, console=console, transient=True, refresh_per_second=4) as line:
            line.add_task(work, total=None)
            yield
    finally:
        rich.reconfigure()


def gain(compared: Comparison) -> str:
    """Sentence on the change of the test score by curation, with its confidence interval."""
    table = compared.facts["scores"]["original"]
    row: Mapping[str, Any] = next(row for row in table["rows"] if row["metric"] == METRIC)
    before, after = row["means"]
    verb = {1: "raises", -1: "lowers", 0: "does not clearly change"}[verdict(row)]
    low, high = (short(row[name], sign=True) for name in ("low", "high"))
    return (
        f"Curation {verb} test {METRIC}: {short(before)} without it, {short(after)} with it.\n"
        f"Difference {short(row['difference'], sign=True)}, 95% interval {low} to {high} over "
        f"{table['num_photos']:,} images, of one seed."
    )


def removed(run: Path) -> str:
    """Sentence on how many captions a run removed before training, and how many were wrong."""
    before = read_json(run / "curation" / "epochs.json")[0]
    text = f"Curation removed {before['num_removed']:,} captions"
    found = before["detection"]
    if not found or found["precision"] is None:
        return text
    return (
        f"{text}: {found['precision']:.0%} of them were really wrong, which is\n"
        f"  {found['recall']:.0%} of the {found['num_faulty']:,} wrong captions."
    )


def score_table(scores: Mapping[str, Mapping[str, float]]) -> Table:
    """Table of test scores, a row per metric and a column per policy, at most 80 columns wide.

    Args:
        scores: test scores by metric, by policy; the same metrics of all policies.
    """
    table = Table(box=None, padding=(0, 2))
    table.add_column("test score", no_wrap=True)
    for policy in scores:
        table.add_column(policy, justify="right", no_wrap=True)
    for name in next(iter(scores.values())):
        table.add_row(name, *(f"{of_policy[name]:.3f}" for of_policy in scores.values()))
    return table
