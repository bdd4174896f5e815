"""What an evaluation of control prints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from captioning.metrics.control import ControlScores

SHOWN_SCORES = ("IoU", "Hal", "missing", "L", "LP", "G", "GRUEN", "sC", "D-1", "D-2", "H")
SHOWN_SCORES += ("H (GRUEN)",)


def show_control(scores: ControlScores, swap: Mapping[str, Any] | None, name: str) -> None:
    """Print scores, and beside them those for the regions of other captions."""
    console, table = Console(), Table(title=name)
    for column in ("score", "its own regions", "all that can be swapped", "swapped regions"):
        table.add_column(column)
    for score in (name for name in SHOWN_SCORES if name in scores.corpus):
        both = ["", ""]
        if swap is not None and score in swap["matched"]:
            both = [f"{swap[side][score]:.4f}" for side in ("matched", "swapped")]
        table.add_row(score, f"{scores.corpus[score]:.4f}", *both)
    console.print(table)
    for missing, reason in scores.settings["missing"].items():
        console.print(f"{missing} is missing: {reason}", markup=False)
    if swap is not None:
        difference = swap["difference"]
        mean, low, high = (difference[key] for key in ("mean", "low", "high"))
        text = f"IoU, swapped less own: {mean:+.4f} [{low:+.4f}, {high:+.4f}]"
        console.print(f"{text}, p = {difference['p_value']:.4f}; changed {swap['changed']:.1%}")


def show_further(result: Mapping[str, Any], out: Path) -> None:
    """Print the scores by random controls and the standard ones, and where all was written."""
    console = Console()
    named = {"random": "random controls", "standard": "against its own caption"}
    for key, name in named.items():
        if result[key]:
            values = [f"{score} {value:.4f}" for score, value in result[key]["corpus"].items()]
            console.print(f"{name}: {', '.join(values)}", markup=False, highlight=False)
            for missing, reason in result[key]["settings"]["missing"].items():
                console.print(f"{missing} is missing: {reason}", markup=False)
    console.print(f"written: {out / 'control.json'}", markup=False, soft_wrap=True)
