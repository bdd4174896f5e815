"""Shared parts of studies and builders of docs/results: programs, finished runs by row and seed."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from captioning.files import read_json, write_text
from captioning.results.records import keep_record
from captioning.results.runs import Run, read_runs

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "docs" / "results" / "records"
METRIC = "CIDEr-D"
PEOPLE = "people's captions"

Table = dict[tuple[str, ...], dict[int, Run]]  # by what tells rows apart, then by seed
FAULTS = "steps.plant_faults.name"


def run(program: Sequence[str]) -> None:
    """A program in a process of its own.

    Raises:
        SystemExit: it failed.
    """
    print(" ".join(program), flush=True)
    done = subprocess.run([sys.executable, *program], check=False, cwd=ROOT)
    if done.returncode:
        sys.exit(f"it ended with {done.returncode}; what is finished is kept, run this again")


def write_page(name: str, lines: Sequence[str]) -> Path:
    """Write docs/results/NAME.md; returns its path."""
    path = ROOT / "docs" / "results" / f"{name}.md"
    write_text(path, "\n".join(lines) + "\n")
    return path


def finished(folders: Iterable[Path]) -> list[Path]:
    """The run folders that have been tested."""
    return [folder for folder in sorted(folders) if (folder / "metrics.json").is_file()]


def studies(records: Path, pattern: str) -> list[Path]:
    """Files of records in a folder by the studies' names, such as ``flickr8k-*``."""
    return sorted(records.glob(f"{pattern}.jsonl"))


def _value(run: Run, name: str) -> str:
    """A setting as text; the earliest records have the name of planted faults elsewhere."""
    value = run.setting(name)
    if name == FAULTS and value is None:
        value = run.setting("noise.name") or "none"
    return str(value)


def read_table(
    sources: Sequence[Path], settings: Sequence[str] = (FAULTS, "curation.name")
) -> Table:
    """The runs of files of records by some of their settings, then by seed."""
    table: Table = {}
    for run in read_runs(sources):
        key = tuple(_value(run, name) for name in settings)
        table.setdefault(key, {})[int(run.config["seed"])] = run
    return table


def head(command: str, table: Table) -> list[str]:
    """The origin of a page's numbers: command, commits, machines, dates, seeds."""
    all_runs = [run for runs in table.values() for run in runs.values()]
    lines = [f"- built by: {command}"]
    for name, key in (("commit", "commit"), ("machine", "machine"), ("date", "date")):
        values = sorted({str(run.versions.get(key)) for run in all_runs})
        lines.append(f"- {name}: {', '.join(values)}")
    return [*lines, f"- seeds: {sorted({seed for runs in table.values() for seed in runs})}", ""]


def captions_used(data: str, folder: str) -> str:
    """The captions whose controls a folder of ``evaluation`` was scored with.

    They are those of people in the test split of ``data`` (MiniWorld's is called ``test_in``), of a
    set generated for its photos, or of other data.
    """
    for plain in (f"{data}-test_in", f"{data}-test"):
        if folder == plain:
            return PEOPLE
        if folder.startswith(f"{plain}-"):
            return f"captions of {folder.removeprefix(f'{plain}-')}"
    return f"captions of {folder}"


def scores(runs: dict[int, Run]) -> dict[int, float]:
    """The test score by seed."""
    values = {seed: run.value(METRIC, "test") for seed, run in runs.items()}
    return {seed: value for seed, value in values.items() if value is not None}


def values_of(runs: dict[int, Run], metric: str) -> list[float]:
    """A test score of all runs that have it."""
    values = (run.value(metric, "test") for run in runs.values())
    return [value for value in values if value is not None]


def keep_with_tests(folder: Path, out: Path, names: Iterable[str]) -> Path:
    """Keep the record of a run, with the scores of further tests of it as ``NAME.json``.

    Args:
        folder: of the run.
        out: folder of all records.
        names: of the folders in the run that evaluate.py wrote; what is not there is passed over.

    Returns:
        The study's file.
    """
    return keep_record(folder, out, further=further_tests(folder, names))


def further_tests(folder: Path, names: Iterable[str]) -> dict[str, dict[str, float]]:
    """Corpus scores of further tests of a run, as ``NAME.json``; see `keep_with_tests`."""
    paths = {f"{name}.json": folder / name / "metrics.json" for name in names}
    return {
        name: read_json(path)["test"]["corpus"] for name, path in paths.items() if path.is_file()
    }


def updates(run: Run) -> int | None:
    """How many updates a run has made; None if an older version made it and never validated."""
    history = run.metrics.get("val_history") or []
    counts = [entry["updates"] for entry in run.timing if "updates" in entry]
    return max([*counts, *(int(epoch["step"]) for epoch in history)], default=None)


def spread(values: Sequence[float], digits: str) -> str:
    """Mean, and the deviation over seeds where there are several."""
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):{digits}}{spread}"
