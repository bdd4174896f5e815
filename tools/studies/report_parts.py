"""Shared parts of the scripts that build docs/results: runs by row and seed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from captioning.results.runs import Run, read_runs
from captioning.runtime.files import write_text

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "docs" / "results" / "records"
METRIC = "CIDEr-D"

Table = dict[tuple[str, ...], dict[int, Run]]  # by what tells rows apart, then by seed
FAULTS = "steps.plant_faults.name"


def write_page(name: str, lines: Sequence[str]) -> Path:
    """Write docs/results/NAME.md and return its path."""
    path = ROOT / "docs" / "results" / f"{name}.md"
    write_text(path, "\n".join(lines) + "\n")
    return path


def studies(records: Path, pattern: str) -> list[Path]:
    """Files of records in a folder whose study names match, such as ``flickr8k-*``."""
    return sorted(records.glob(f"{pattern}.jsonl"))


def _value(run: Run, name: str) -> str:
    """Setting as text; the earliest records store the name of planted faults elsewhere."""
    value = run.setting(name)
    if name == FAULTS and value is None:
        value = run.setting("noise.name") or "none"
    return str(value)


def read_table(
    sources: Sequence[Path], settings: Sequence[str] = (FAULTS, "curation.name")
) -> Table:
    """Read runs from files of records, by some of their settings and then by seed."""
    table: Table = {}
    for run in read_runs(sources):
        key = tuple(_value(run, name) for name in settings)
        table.setdefault(key, {})[int(run.config["seed"])] = run
    return table


def head(command: str, table: Table) -> list[str]:
    """Origin of a page's numbers: command, commits, machines, dates, seeds."""
    all_runs = [run for runs in table.values() for run in runs.values()]
    lines = [f"- built by: {command}"]
    for name, key in (("commit", "commit"), ("machine", "machine"), ("date", "date")):
        values = sorted({str(run.versions.get(key)) for run in all_runs})
        lines.append(f"- {name}: {', '.join(values)}")
    return [*lines, f"- seeds: {sorted({seed for runs in table.values() for seed in runs})}", ""]


def scores(runs: dict[int, Run]) -> dict[int, float]:
    """Test score by seed."""
    values = {seed: run.value(METRIC, "test") for seed, run in runs.items()}
    return {seed: value for seed, value in values.items() if value is not None}


def values_of(runs: dict[int, Run], metric: str) -> list[float]:
    """Test scores of all runs that have the metric."""
    values = (run.value(metric, "test") for run in runs.values())
    return [value for value in values if value is not None]


def spread(values: Sequence[float], digits: str) -> str:
    """Mean, with the standard deviation if there are several seeds."""
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):{digits}}{spread}"
