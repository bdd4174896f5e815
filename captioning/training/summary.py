"""The last lines that a run prints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytorch_lightning.utilities import rank_zero_only
from rich.console import Console
from rich.table import Table


@rank_zero_only
def print_summary(name: str, folder: Path, scores: Mapping[str, float]) -> None:
    """Print the test scores and where the run's files are."""
    console = Console(soft_wrap=True)
    if scores:
        table = Table(title=f"{name}, test")
        table.add_column("metric")
        table.add_column("score", justify="right")
        for name, value in scores.items():
            table.add_row(name, f"{value:.4f}")
        console.print(table)
    console.print(f"run folder: {folder}")
    if (folder / "report.html").is_file():
        console.print(f"what happened, on a page: {folder / 'report.html'}")
    if (folder / "curation.jsonl").is_file():
        console.print(f"what curation changed: {folder / 'curation' / 'report.html'}")


@rank_zero_only
def print_suggestion(rate: float, plot: Path) -> None:
    """Print the learning rate that a sweep suggests."""
    print(f"optimizer.lr={rate:.2g}: there the loss fell most; see {plot}")
