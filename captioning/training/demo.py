"""The demonstration: train on generated scenes with faulty captions, with and without curation.

Run by ``make demo``, or ``captioning demo [key=value ...]``.
"""

from __future__ import annotations

from pathlib import Path

from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table

from captioning.configuration import compose_config
from captioning.training.run import train

POLICIES = ("track", "remove_top_loss_5")


def main(overrides: list[str]) -> None:
    """Train once for each policy and print the test scores side by side."""
    console = Console(soft_wrap=True)
    table = Table(title="MiniWorld, 20% of the training captions swapped, test scores")
    table.add_column("curation", no_wrap=True)
    report = None
    for number, policy in enumerate(POLICIES):
        config = compose_config("train", ["experiment=demo", f"curation={policy}", *overrides])
        OmegaConf.resolve(config)
        console.print(f"[bold]run {number + 1} of {len(POLICIES)}: curation={policy}")
        scores = train(config)
        if number == 0:
            for name in scores:
                table.add_column(name, justify="right")
        name = "none" if policy == "track" else policy
        table.add_row(name, *(f"{value:.3f}" for value in scores.values()))
        report = Path(config.run_dir) / "curation" / "report.html"
    console.print(table)
    console.print(f"what curation changed, and how often it was right: {report}")
    console.print("one seed on a small set: differences below .03 CIDEr-D mean nothing here")
