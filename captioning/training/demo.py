"""The demonstration: train on generated scenes with faulty captions, with and without curation.

Run by ``make demo``, or ``captioning demo [key=value ...]``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table

from captioning.results.run_folder import RunFolder
from captioning.training.run import train

CONFIGS = Path(__file__).parents[2] / "configs"
POLICIES = ("track", "remove_top_loss_5")


def main(overrides: list[str]) -> None:
    """Train once for each policy and print the test scores side by side.

    Runs that are finished are not trained again, and a run that was stopped goes on.
    """
    console = Console(soft_wrap=True)
    scores: dict[str, Mapping[str, float]] = {}
    report = None
    for number, policy in enumerate(POLICIES):
        config = _config(policy, overrides)
        console.print(f"[bold]run {number + 1} of {len(POLICIES)}: curation={policy}")
        if config.resume != "never" and RunFolder(Path(config.run_dir)).finished():
            console.print(f"finished: {config.run_dir} (resume=never trains it anew)", markup=False)
        scores["none" if policy == "track" else policy] = train(config)
        report = Path(config.run_dir) / "curation" / "report.html"
    console.print(score_table(scores))
    console.print(f"what curation changed, and how often it was right: {report}")
    console.print("one seed on a small set: differences below .03 CIDEr-D mean nothing here")


def _config(policy: str, overrides: list[str]) -> DictConfig:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = compose("train", ["experiment=demo", f"curation={policy}", *overrides])
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


if __name__ == "__main__":
    main(sys.argv[1:])
