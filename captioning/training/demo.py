"""The demonstration: train on generated scenes with faulty captions, with and without curation.

Run by ``make demo``, or ``captioning demo [key=value ...]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table

from captioning.configuration import compose_config
from captioning.results.run_folder import RunFolder
from captioning.training.run import Finished, train

POLICIES = {
    "none": ("curation=track",),
    "remove the worst 5%": ("curation=remove", "curation.select.ratio=0.05"),
}


def main(overrides: list[str], finished: Finished | None = None) -> None:
    """Train once for each policy and print the test scores side by side.

    Runs that are finished are not trained again, and a run that was stopped goes on.

    Args:
        overrides: as of ``captioning train``.
        finished: see `captioning.training.run.train`.
    """
    console = Console(soft_wrap=True)
    scores: dict[str, Mapping[str, float]] = {}
    report = None
    for number, (policy, choice) in enumerate(POLICIES.items()):
        config = _config(choice, overrides)
        console.print(f"[bold]run {number + 1} of {len(POLICIES)}: {' '.join(choice)}")
        if config.resume != "never" and RunFolder(Path(config.run_dir)).finished():
            console.print(f"finished: {config.run_dir} (resume=never trains it anew)", markup=False)
        scores[policy] = train(config, finished)
        report = Path(config.run_dir) / "curation" / "report.html"
    console.print(score_table(scores))
    console.print(f"what curation changed, and how often it was right: {report}")
    console.print("one seed on a small set: differences below .03 CIDEr-D mean nothing here")


def _config(choice: Sequence[str], overrides: list[str]) -> DictConfig:
    config = compose_config("train", ["experiment=demo", *choice, *overrides])
    OmegaConf.resolve(config)
    return config


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
