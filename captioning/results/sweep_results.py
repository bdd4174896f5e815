"""What a sweep leaves: a table of its finished runs, and what became of every job."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from captioning.results.run_folder import RunFolder, ended_untested, failure_of
from captioning.results.runs import Run, read_run
from captioning.results.table import DEFAULT_METRICS, Options, build_table
from captioning.results.table_formats import Table, markdown_lines, to_csv, to_markdown
from captioning.runtime.files import write_text

FINISHED, SKIPPED, FAILED, UNFINISHED = "finished", "finished before", "failed", "not finished"
_KINDS = (FINISHED, SKIPPED, FAILED, UNFINISHED)
_VALUES = "swept_values"  # a key that no config has
# Columns that the others make unnecessary in a table that has to be read at a glance.
LEFT_OUT = ("BLEU-1", "BLEU-2", "BLEU-3")
POOLED = "seed"
MAX_METRICS = 8  # columns; the CSV has all
MAX_ERROR = 300  # characters of an error in a table; all of it is in the run's folder


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job of a sweep.

    Attributes:
        overrides: of the command line, such as ``"optimizer.lr=1e-3"``.
        values: of the keys that are swept.
        run: its folder.
        was_finished: before the sweep began.
    """

    overrides: tuple[str, ...]
    values: Mapping[str, str]
    run: Path
    was_finished: bool = False

    @property
    def name(self) -> str:
        """The overrides that tell it from the others, as they are typed."""
        return shlex.join(f"{key}={value}" for key, value in self.values.items())

    def state(self) -> tuple[str, str]:
        """What became of it, and the error if it failed."""
        try:
            error = failure_of(self.run)
            finished = RunFolder(self.run).finished()
        except ValueError as damage:
            return FAILED, str(damage)
        if error is not None:
            return FAILED, error
        if finished:
            return (SKIPPED if self.was_finished else FINISHED), ""
        return UNFINISHED, ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A sweep's report as text.

    Attributes:
        states: number of jobs by state.
        short: table and failed jobs, for the terminal.
        page: all of it, for ``sweep.md``.
        csv: the table's numbers; None without a finished run.
    """

    states: Mapping[str, int]
    short: str
    page: str
    csv: str | None


def report_sweep(jobs: Sequence[Job], *, name: str, command: str) -> Report:
    """The report of a sweep as its folders are now.

    Rows are the combinations of what was swept but the seed, which is pooled: mean and sample
    standard deviation. Runs that have not ended are left out of the table and listed.

    Args:
        jobs: all of them, in order.
        name: of the sweep.
        command: that started it.
    """
    states = [job.state() for job in jobs]
    ended = [job for job, (state, _) in zip(jobs, states, strict=True) if _is_done(state)]
    table, problem = _table(ended, command)
    readable = None if table is None else _readable(table)
    counts = {kind: sum(state == kind for state, _ in states) for kind in _KINDS}
    counts = {kind: number for kind, number in counts.items() if number}
    summary = f"{len(jobs)} jobs: " + ", ".join(f"{n} {kind}" for kind, n in counts.items())
    bare = "" if readable is None else to_markdown(replace(readable, head=())).strip()
    failed = [f"- {job.name}: {e}" for job, (s, e) in zip(jobs, states, strict=True) if s == FAILED]
    rest = ["failed:", *failed] if failed else []
    short = "\n".join(line for line in [bare, problem, summary, *rest] if line)
    page = [f"# Sweep {name}", "", f"- command: `{command}`", f"- {summary}"]
    page += [to_markdown(readable) if readable is not None else f"\n{problem}\n"]
    page += ["## Jobs", "", *_job_lines(jobs, states), ""]
    return Report(
        states=counts,
        short=short,
        page="\n".join(page),
        csv=None if table is None else to_csv(table),
    )


def write_report(folder: Path, report: Report) -> None:
    """``sweep.md`` and, if a run has finished, ``sweep.csv``."""
    write_text(folder / "sweep.md", report.page)
    if report.csv is not None:
        write_text(folder / "sweep.csv", report.csv)


def _is_done(state: str) -> bool:
    return state in (FINISHED, SKIPPED)


def _job_lines(jobs: Sequence[Job], states: Sequence[tuple[str, str]]) -> Iterator[str]:
    rows = [
        (job.name or "-", state, str(job.run), _short(error))
        for job, (state, error) in zip(jobs, states, strict=True)
    ]
    yield from markdown_lines(("job", "state", "folder", "error"), rows)


def _short(error: str) -> str:
    line = " ".join(error.split()).replace("|", "\\|")
    return line if len(line) <= MAX_ERROR else f"{line[:MAX_ERROR]} ..."


def _table(jobs: Sequence[Job], command: str) -> tuple[Table | None, str]:
    """The table of finished jobs, or why there is none."""
    if not jobs:
        return None, "No job has finished, so there is no table."
    if all(ended_untested(job.run) for job in jobs):
        return None, "No job has a test (data.test=null), so there is no table."
    try:
        runs = [_with_values(job) for job in jobs]
        columns = _columns(jobs, runs)
        group = list(columns) or ["run_name"]
        table = build_table(runs, Options(group=group, metrics=_metrics(runs), command=command))
    except ValueError as error:
        return None, f"No table: {error}."
    head = tuple(line for line in table.head if not line.startswith(("run: ", "built by: ")))
    return replace(table, group=tuple(columns.values()) or table.group, head=head), ""


def _columns(jobs: Sequence[Job], runs: Sequence[Run]) -> dict[str, str]:
    """Headings of the table's first columns by their key in the config of `_with_values`."""
    keys = list(dict.fromkeys(key for job in jobs for key in job.values if key != POOLED))
    columns = {f"{_VALUES}.{number}": key for number, key in enumerate(keys)}
    if len({run.setting("data.name") for run in runs}) == 1:
        return columns
    # Scores of different data stand in rows of their own.
    return {key: name for key, name in columns.items() if name != "data"} | {"data.name": "data"}


def _with_values(job: Job) -> Run:
    """A run whose config holds the swept values as they were typed, numbered."""
    run = read_run(job.run)
    values = [value for key, value in job.values.items() if key != POOLED]
    numbered = {str(number): value for number, value in enumerate(values)}
    return replace(run, config={**run.config, _VALUES: numbered})


def _metrics(runs: Sequence[Run]) -> list[str]:
    """All scores of the runs, those of most papers first."""
    names = dict.fromkeys(name for run in runs for name in run.scores("test", "corpus"))
    return [
        *(n for n in DEFAULT_METRICS if n in names),
        *(n for n in names if n not in DEFAULT_METRICS),
    ]


def _readable(table: Table) -> Table:
    """The table with its first columns alone."""
    shown = [
        name for name in table.metrics if name not in LEFT_OUT or "BLEU-4" not in table.metrics
    ]
    shown = shown[:MAX_METRICS]
    places = [table.metrics.index(name) for name in shown]
    rows = [replace(row, cells=tuple(row.cells[place] for place in places)) for row in table.rows]
    number = len(table.metrics) - len(shown)
    further = (f"further scores: {number} more are in sweep.csv",) if number else ()
    return replace(table, metrics=tuple(shown), rows=tuple(rows), head=(*table.head, *further))
