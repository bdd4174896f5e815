"""Measured values of the cells of a paper's tables, from run folders and records."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from captioning.papers.paper import UNITS, Column, Item, Paper, PaperRun, Recorded, Row, Way
from captioning.results.runs import METRICS, STEPS, Run, as_number, read_run, read_runs

STATES: tuple[str, ...] = ("measured", "missing", "not possible", "quoted")
NO_METRIC = "This project does not compute this score."


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Cell of a table at one scale.

    Attributes:
        state: one of `STATES`. ``"quoted"``: the paper quotes the number from another publication.
        values: measured values by seed, in the paper's unit.
        seeds: seeds of the values.
        reason: why a measurement is not possible, or whom the paper quotes.
        differs: differences from the paper's procedure.
    """

    state: str
    values: tuple[float, ...] = ()
    seeds: tuple[str, ...] = ()
    reason: str = ""
    differs: tuple[str, ...] = ()

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation; None for one seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None


class Results:
    """Finished runs of papers.

    Args:
        runs: folder of all runs; those of papers lie in ``runs/papers/PAPER-SCALE/RUN/seedN``.
        records: folders of records (`captioning.results.runs`); the first with the file is used.
    """

    def __init__(self, runs: Path, records: Sequence[Path] = ()) -> None:
        self.runs, self.records = runs, records
        self._studies: dict[str, list[Run]] = {}

    def folder(self, paper: Paper, run: PaperRun, scale: str, seed: int) -> Path:
        """Folder of a run."""
        folder = self.runs / "papers" / f"{paper.id}-{scale}" / run.id
        return folder / f"seed{seed}" if run.seeded else folder / "made"

    def of(self, paper: Paper, run: PaperRun, scale: str) -> list[Run]:
        """Finished runs, one per seed.

        They come from folders, else the paper's records, else records that its file names.
        """
        found: dict[str, Run] = {}
        study = f"{paper.id}-{scale}"
        named = run.ways[scale].recorded if scale in run.ways else ()
        sources: list[Callable[[], list[Run]]] = [
            lambda: self._in_folders(study, run),
            lambda: self._named(study, run.id),
            *(_reader(self, recorded) for recorded in named),
        ]
        for source in sources:
            for measured in source():
                found.setdefault(_seed_of(measured), measured)
        return [found[seed] for seed in sorted(found, key=_as_order)]

    def _in_folders(self, study: str, run: PaperRun) -> list[Run]:
        folder = self.runs / "papers" / study / run.id
        done = {path.parent for name in (METRICS, STEPS) for path in folder.glob(f"*/{name}")}
        return [read_run(folder) for folder in sorted(done)]

    def recorded(self, recorded: Recorded) -> list[Run]:
        """Runs in a file of records that have this name and these config values."""
        return [
            replace(run, files=_files_of(run, recorded))
            for run in self._named(recorded.file, recorded.run)
            if all(run.setting(key) == value for key, value in recorded.values.items())
        ]

    def _named(self, study: str, name: str | None) -> list[Run]:
        """Runs in a file of records, all or those with one name."""
        return [run for run in self._study(study) if name in (None, run.folder.parts[-2])]

    def _study(self, name: str) -> list[Run]:
        paths = [folder / f"{name}.jsonl" for folder in self.records]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            return []
        if name not in self._studies:
            self._studies[name] = read_runs([path])
        return self._studies[name]


class Cells:
    """Cells of one paper at one scale."""

    def __init__(self, paper: Paper, scale: str, results: Results) -> None:
        self.paper, self.scale, self._results = paper, scale, results
        self._runs: dict[str, list[Run]] = {}

    def cell(self, item: Item, row: Row, place: int) -> Cell:
        """Cell of a row in the column with index ``place``."""
        column = item.columns[place].on(self.scale)
        if row.reason is not None:
            return Cell(state=row.reason[0], reason=row.reason[1])
        way = self.way(row)
        if way.impossible is not None:
            return Cell(state="not possible", reason=way.impossible)
        if column.metric is None:
            return Cell(state="not possible", reason=column.differs or NO_METRIC)
        differs = tuple(filter(None, (*self._differences(str(row.run)), column.differs)))
        found = ((_seed_of(run), _value(run, row, column)) for run in self.runs_of(str(row.run)))
        measured = {seed: value for seed, value in found if value is not None}
        without = [way.without.get(name) for name in (column.name, column.file, column.metric)]
        if any(without) and not measured:
            return Cell(state="not possible", reason=next(filter(None, without)))
        return Cell(
            state="measured" if measured else "missing",
            values=tuple(measured.values()),
            seeds=tuple(measured),
            differs=differs,
        )

    def way(self, row: Row) -> Way:
        """Commands and settings of a row's run at this scale."""
        absent = Way(impossible=f"This run has no substitute at the scale {self.scale}.")
        return self.paper.runs[str(row.run)].ways.get(self.scale, absent)

    def _differences(self, name: str) -> tuple[str, ...]:
        """Differences of a run, and of runs that it needs, from the paper, each once."""
        way = self.paper.runs[name].ways[self.scale]
        needed = (text for need in way.needs for text in self._differences(need))
        return tuple(dict.fromkeys((*way.differs, *needed)))

    def runs_of(self, name: str) -> list[Run]:
        """Finished runs of this scale."""
        if name not in self._runs:
            self._runs[name] = self._results.of(self.paper, self.paper.runs[name], self.scale)
        return self._runs[name]

    def row_cells(self, item: Item, row: Row) -> list[Cell]:
        """All cells of a row."""
        return [self.cell(item, row, place) for place in range(len(item.columns))]

    @cached_property
    def counts(self) -> dict[str, int]:
        """Number of cells by state, among cells with a published number."""
        counts = dict.fromkeys(STATES, 0)
        for item in self.paper.items.values():
            for row in item.rows:
                cells = self.row_cells(item, row)
                for published, cell in zip(row.published, cells, strict=True):
                    counts[cell.state] += published is not None
        return counts


def table_digits(column: Column) -> int:
    """Number of decimals of a measured value in tables."""
    return {"percent": 2, "plain": 3, "count": 0}[column.unit]


def _reader(results: Results, recorded: Recorded) -> Callable[[], list[Run]]:
    return lambda: results.recorded(recorded)


def _seed_of(run: Run) -> str:
    """Seed of a run, by its folder's name or else by its config."""
    name = run.folder.name
    return name.removeprefix("seed") if name.startswith("seed") else str(run.setting("seed"))


def _as_order(seed: str) -> tuple[int, str]:
    return (int(seed), seed) if seed.isdecimal() else (-1, seed)


def _value(run: Run, row: Row, column: Column) -> float | None:
    file = row.file or column.file
    content: Any = run.metrics if file == METRICS else run.files.get(file, {})
    part = column.part if row.part is None else row.part
    for key in [*filter(None, part.split(".")), str(column.metric)]:
        content = _part(content, key)
    number = as_number(content)
    return None if number is None else number * UNITS[column.unit]


def _part(content: Any, key: str) -> Any:
    """Part of a mapping by key, or of a list by index."""
    if isinstance(content, list) and key.isdecimal() and int(key) < len(content):
        return content[int(key)]
    return content.get(key) if isinstance(content, Mapping) else None


def _files_of(run: Run, recorded: Recorded) -> Mapping[str, Any]:
    """Files of a record under today's file names of run folders."""
    known = {new: run.files[old] for new, old in recorded.files.items() if old in run.files}
    tests = {
        file: {"test": {"corpus": run.files[name]}}
        for file, name in recorded.tests.items()
        if name in run.files
    }
    return {**run.files, **known, **tests} if known or tests else run.files


def missing_runs(cells: Cells, items: Sequence[Item], seed: int) -> list[str]:
    """Runs with a cell that lacks a value for a seed but can be measured.

    A run shared by all seeds counts as measured for each of them.
    """
    rows = [(row, cells.row_cells(item, row)) for item in items for row in item.rows if row.run]
    lacking = (
        str(row.run)
        for row, of_row in rows
        if any(_lacks(cell, cells.paper.runs[str(row.run)], seed) for cell in of_row)
    )
    return list(dict.fromkeys(lacking))


def _lacks(cell: Cell, run: PaperRun, seed: int) -> bool:
    if cell.state == "measured":
        return run.seeded and str(seed) not in cell.seeds
    return cell.state == "missing"
