"""The demonstration: train on generated scenes with faulty captions, with and without curation.

Run by ``make demo``, or ``captioning demo [key=value ...]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table

from captioning.config.compose import compose_config
from captioning.evaluation.compare import Comparison, Side, compare_runs
from captioning.results.run_folder import RunFolder
from captioning.runtime.files import read_json
from captioning.training.preflight import settings_of
from captioning.training.run import Finished, train
from captioning.training.settings import TrainSettings

POLICIES = {"none": "curation=track", "recommended": "curation=recommended"}
Page = Callable[[Comparison, Path], None]


def main(overrides: list[str], finished: Finished | None = None, page: Page | None = None) -> None:
    """Train once for each policy, print the test scores side by side and compare the captions.

    Finished runs are not trained again, and a stopped run resumes.

    Args:
        overrides: overrides as of ``captioning train``.
        finished: see `captioning.training.run.train`.
        page: writes the page of the comparison.
    """
    console = Console(soft_wrap=True)
    scores: dict[str, Mapping[str, float]] = {}
    folders: dict[str, Path] = {}
    for number, (policy, choice) in enumerate(POLICIES.items()):
        settings = _settings(choice, overrides)
        console.print(f"[bold]run {number + 1} of {len(POLICIES)}: {choice}")
        folder = folders[policy] = Path(settings.run_dir)
        if settings.resume != "never" and RunFolder(folder).finished():
            console.print(f"finished: {folder} (resume=never trains it from scratch)", markup=False)
        scores[policy] = train(settings, finished)
    console.print(score_table(scores))
    _compare(console, folders, page)


def _settings(choice: str, overrides: Sequence[str]) -> TrainSettings:
    config = compose_config("train", ["experiment=demo", choice, *overrides])
    OmegaConf.resolve(config)
    return settings_of(config)


def _compare(console: Console, folders: Mapping[str, Path], page: Page | None) -> None:
    sides = [Side(name=policy, folders=[folder]) for policy, folder in folders.items()]
    compared = compare_runs(*sides, metrics=["CIDEr-D"])
    for sentence in compared.facts["sentences"]:
        console.print(sentence, markup=False)
    last = folders["recommended"]
    console.print(removed(last), markup=False)
    console.print(f"what was removed and why: {last}/curation/report.html", markup=False)
    if page is not None:
        path = last.parent.parent / f"compared_{last.name}.html"
        page(compared, path)
        console.print(f"captions of both beside their photos: {path}", markup=False)


def removed(run: Path) -> str:
    """How many captions a run removed before training, and how many of them rightly."""
    before = read_json(run / "curation" / "epochs.json")[0]
    text = f"recommended removed {before['num_removed']:,} captions"
    found = before["detection"]
    if not found or found["precision"] is None:
        return text
    return (
        f"{text}: {found['precision']:.0%} of them were swapped, and {found['recall']:.0%} of the "
        f"{found['num_faulty']:,} swapped ones are among them"
    )


def score_table(scores: Mapping[str, Mapping[str, float]]) -> Table:
    """A row a metric and a column a policy, so that it fits into 80 columns.

    Args:
        scores: test scores by metric, by policy; the same metrics of all policies.
    """
    table = Table(title="MiniWorld, 20% of the training captions swapped, test scores")
    table.add_column("metric", no_wrap=True)
    for policy in scores:
        table.add_column(policy, justify="right", no_wrap=True)
    for name in next(iter(scores.values())):
        table.add_row(name, *(f"{of_policy[name]:.3f}" for of_policy in scores.values()))
    return table
