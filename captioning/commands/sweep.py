"""Sweeps (``-m``): check all jobs first, isolate their errors, and print a table at the end.

`run_hydra` creates a `Sweep`; Hydra's callback, named in the command's config, begins and ends it.

`Checker` composes and checks all jobs before the first starts; `report_sweep` shows a table of
finished runs and the state of every job.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from captioning.commands.command import INTERRUPTED, HydraCommand
from captioning.commands.hydra_errors import explain_hydra_error
from captioning.config.hydra_bends import FULL_ERROR, lost_jobs_kept
from captioning.config.run_names import plain_lines
from captioning.results.run_folder import RunFolder, ended_untested, failure_of
from captioning.results.runs import Run, read_run
from captioning.results.table import DEFAULT_METRICS, Options, build_table
from captioning.results.table_formats import Table, markdown_lines, to_csv, to_markdown
from captioning.runtime.files import write_text

# Names the sweep to its jobs: the group of wandb and the tag of MLflow.
SWEEP = "CAPTIONING_SWEEP"
BASIC = "basic"  # Hydra's own sweeper
FOLDER = "sweeps"  # below the folder of all runs
MAX_NAME = 60  # characters, without the digest

_current: list[Sweep] = []
MAX_SHOWN = 4  # jobs that an error names
WRONG = (HydraException, OmegaConfBaseException, ValueError, TypeError, OSError, ImportError)

Values = dict[str, str]
FINISHED, SKIPPED, FAILED, UNFINISHED = "finished", "finished before", "failed", "not finished"
_KINDS = (FINISHED, SKIPPED, FAILED, UNFINISHED)
_VALUES = "swept_values"  # a key that no config has
# Columns that the others make unnecessary in a table that has to be read at a glance.
LEFT_OUT = ("BLEU-1", "BLEU-2", "BLEU-3")
POOLED = "seed"
MAX_METRICS = 8  # columns; the CSV has all
MAX_ERROR = 300  # characters of an error in a table; all of it is in the run's folder


class SweepCallback(Callback):
    """Callback that Hydra calls at the beginning and at the end of a sweep."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Check all jobs before the first starts."""
        for sweep in _current:
            try:
                sweep.begin(config)
            except Exception as error:  # noqa: BLE001 - Hydra would only warn of it
                sys.exit(
                    f"the jobs of this sweep cannot be checked: {type(error).__name__}: {error}"
                )

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """Print and write the sweep's table."""
        for sweep in _current:
            sweep.end()


class Sweep:
    """Jobs of one sweep command.

    Args:
        command: command that the jobs run.
        line: the command line, for the report.
        full_error: whether to show tracebacks of launcher errors.
        config_dir: folder of the user's own configs, ``--config-dir``.
    """

    def __init__(
        self, command: HydraCommand, *, line: str, full_error: bool, config_dir: str | None
    ) -> None:
        self._command, self._line, self._config_dir = command, line, config_dir
        self.name, self.full_error = command.name, full_error
        self._jobs: list[Any] = []
        self._folder = Path()
        self.is_open = False
        self.num_lost = 0  # jobs that did not finish, once it has ended

    def begin(self, config: DictConfig) -> None:
        """Compose and check every job, and name the sweep.

        Raises:
            SystemExit: a config is wrong, or two jobs share a folder; no job was started.
        """
        if config.hydra.runtime.choices.get("hydra/launcher") == "slurm":
            _check_devices(OmegaConf.select(config, "trainer.devices", default=1), self.name)
        loader = GlobalHydra.instance().config_loader()
        is_basic = config.hydra.runtime.choices["hydra/sweeper"] == BASIC
        lines = sweep_lines(config.hydra.sweeper.get("params"), config.hydra.overrides.task)
        overrides = sweep_overrides(lines, loader) if is_basic else []
        name = sweep_name(lines, overrides)
        self._folder = Path(config.paths.runs) / FOLDER / name
        with open_dict(config):
            config.hydra.overrides.hydra.append(f"++hydra.job.env_set.{SWEEP}={name}")
        if not is_basic:
            print("this sweeper chooses jobs one after the other: none is checked now, no table")
        if not is_basic or self._command.check is None:
            return
        checker = Checker(
            config=config,
            loader=loader,
            name=self._command.config,
            check=self._command.check,
            config_dir=self._config_dir,
        )
        try:
            self._jobs = checker.jobs(overrides)
        except ValueError as error:
            sys.exit(f"{self.name}: {error}")
        self.is_open = True

    def lose(self, overrides: Sequence[str], error: str) -> None:
        """Record the error of a job that could not record one itself, as a queue ended it."""
        from captioning.results.run_folder import failure_of, keep_failure

        for job in self._jobs:
            if job.overrides == tuple(overrides) and failure_of(job.run) is None:
                keep_failure(job.run, error)

    def end(self) -> None:
        """Print and write the report, only once."""
        if not self.is_open:
            return

        self.is_open = False
        report = report_sweep(self._jobs, name=self._folder.name, command=self._line)
        write_report(self._folder, report)
        print(f"\n{report.short}\nsweep: {self._folder / 'sweep.md'}", flush=True)
        self.num_lost = sum(report.states.get(kind, 0) for kind in (FAILED, UNFINISHED))


def _check_devices(devices: Any, name: str) -> None:
    """Check that the number of devices is known, as Slurm gets a task per device."""
    if not isinstance(devices, int) or devices < 1:
        sys.exit(
            f"{name}: trainer.devices={devices}: with hydra/launcher=slurm it must be a number of "
            "at least 1, as each device is a task of the job; no job was queued"
        )


@contextmanager
def sweeping(sweep: Sweep) -> Iterator[None]:
    """Let Hydra's callback begin and end the sweep; a sweep that ends early is reported, too.

    Raises:
        SystemExit: a job did not finish; the status is 1.
    """
    _current.append(sweep)
    try:
        with lost_jobs_kept(sweep.lose):
            yield
    except Exception as error:
        # Errors of jobs do not get here.
        if not sweep.is_open or sweep.full_error:
            raise
        sweep.end()
        sys.exit(
            f"{sweep.name}: the launcher ended: {_launcher_error(error)}; the same command resumes"
        )
    except KeyboardInterrupt:
        if not sweep.is_open:
            raise
        sweep.end()
        print("interrupted; the same command resumes; jobs in a queue stay there", file=sys.stderr)
        sys.exit(INTERRUPTED)
    finally:
        _current.remove(sweep)
        sweep.end()
    if sweep.num_lost:
        sys.exit(1)


def _launcher_error(error: Exception) -> str:
    if type(error).__name__ == "TerminatedWorkerError":  # joblib's, which need not be installed
        return "a job was killed, perhaps for lack of memory, and joblib then ends all jobs"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def is_job_of_sweep() -> bool:
    """Whether this is a job of a sweep in which a failed job does not end the others."""
    if not HydraConfig.initialized():
        return False
    hydra = HydraConfig.get()
    # Other sweepers need the error itself, or the score.
    is_basic = hydra.runtime.choices["hydra/sweeper"] == BASIC
    return is_basic and hydra.mode == RunMode.MULTIRUN and "sweep" in (hydra.callbacks or {})


def run_job(name: str, run: Path, task: Callable[[], float | None]) -> float | None:
    """Run a job of a sweep; an error is recorded in the job's folder and ends only this job.

    Args:
        name: the command's name, for messages.
        run: the job's folder.
        task: the function that the job calls.

    Raises:
        SystemExit, KeyboardInterrupt: a signal or the user stopped a job, which ends the sweep.
    """
    from captioning.results.run_folder import keep_failure

    environment = dict(os.environ)
    try:
        return task()
    except SystemExit as ended:
        if not isinstance(ended.code, str):  # a status: stopped by a signal or a queue
            raise
        error, details = ended.code.partition(f"\n({FULL_ERROR}")[0], ""
    except Exception as raised:  # noqa: BLE001 - an error of any kind ends this job alone
        error, details = f"{name}: {type(raised).__name__}: {raised}", traceback.format_exc()
    finally:
        _leave_nothing(environment)
    print(f"{details}{error}", file=sys.stderr, flush=True)
    keep_failure(run, error.removeprefix(f"{name}: "), details=details)
    return None


def _leave_nothing(environment: Mapping[str, str]) -> None:
    """Reset state that would make the next job in this process join this job's process group."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
    for key in set(os.environ) - set(environment):
        del os.environ[key]
    os.environ.update(environment)


def sweep_name(task: Sequence[str], jobs: Sequence[Sequence[str]]) -> str:
    """Name of a sweep, the same whenever the sweep is started again.

    Args:
        task: overrides of the whole sweep; their order, and settings without effect on results, are
            ignored.
        jobs: overrides of each job.
    """
    from captioning.results.run_folder import FREE_KEYS

    counting = sorted(line for line in task if not line.lstrip("+").startswith(FREE_KEYS))
    digest = hashlib.sha256("\n".join(counting).encode()).hexdigest()[:8]
    keys = sorted(swept_values(jobs)[0]) if jobs else []
    words = re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(keys))[:MAX_NAME]
    return f"{words or 'sweep'}-{digest}"


class Checker:
    """Compose jobs and collect their errors.

    Args:
        config: the sweep's config, with ``hydra``.
        loader: Hydra's loader of configs.
        name: the name of the command's config.
        check: function that raises an error for an invalid config.
        config_dir: folder of the user's own configs, ``--config-dir``.
    """

    def __init__(
        self,
        *,
        config: DictConfig,
        loader: ConfigLoader,
        name: str,
        check: Callable[[DictConfig], None],
        config_dir: str | None,
    ) -> None:
        self._config_dir = config_dir
        self._config, self._loader, self._name, self._check = config, loader, name, check
        self.errors: dict[str, list[Values]] = {}

    def jobs(self, overrides: Sequence[Sequence[str]]) -> list[Job]:
        """Jobs with these overrides, without jobs that have a wrong config.

        Raises:
            ValueError: jobs have wrong configs (one line per error, with its jobs), or two jobs
                would share a folder.
        """
        values = swept_values(overrides)
        jobs = [self._job(o, v) for o, v in zip(overrides, values, strict=True)]
        if self.errors:
            raise ValueError("\n".join(_error_lines(self.errors, values)))
        composed = [job for job in jobs if job is not None]
        _refuse_shared_folders(composed)
        return composed

    def _job(self, overrides: Sequence[str], values: Values) -> Job | None:
        before = HydraConfig.instance().cfg
        try:
            config = self._loader.load_sweep_config(self._config, list(overrides))
            HydraConfig.instance().set_config(config)  # for ${hydra:...}
            run = Path(config.run_dir)
            with open_dict(config):
                del config["hydra"]
            self._check(config)
            was_finished = RunFolder(run).finished()
        except WRONG as error:
            self.errors.setdefault(self._text(error, overrides), []).append(values)
            return None
        finally:
            HydraConfig.instance().cfg = before
        return Job(overrides=tuple(overrides), values=values, run=run, was_finished=was_finished)

    def _text(self, error: Exception, overrides: Sequence[str]) -> str:
        if not isinstance(error, HydraException):
            return str(error).strip()
        return explain_hydra_error(
            error, name=self._name, overrides=overrides, config_dir=self._config_dir
        )


def sweep_lines(params: Mapping[str, Any] | None, task: Sequence[str]) -> list[str]:
    """Overrides of a whole sweep, including those that only its jobs read.

    Args:
        params: the parameters of Hydra's sweeper.
        task: the command line.
    """
    further = [f"{key}={value}" for key, value in (params or {}).items()]
    return [*further, *plain_lines(task)]


def sweep_overrides(lines: Sequence[str], loader: ConfigLoader) -> list[list[str]]:
    """Overrides of every job of Hydra's own sweeper, in its order.

    Args:
        lines: the lines of the whole sweep, from `sweep_lines`.
        loader: Hydra's loader of configs.

    Raises:
        HydraException: the sweep is over a range of real numbers, which is not supported.
    """
    values: dict[str, list[str]] = {}
    for override in OverridesParser.create(loader).parse_overrides([*lines]):
        key = override.get_key_element()
        if not override.is_sweep_override():
            values[key] = [override.get_value_element_as_str()]
        elif override.is_discrete_sweep():
            values[key] = list(override.sweep_string_iterator())
        else:
            raise HydraException(f"{key}: hydra/sweeper=basic takes lists and ranges of numbers")
    choices = [[f"{key}={value}" for value in found] for key, found in values.items()]
    return [list(job) for job in itertools.product(*choices)]


def swept_values(jobs: Sequence[Sequence[str]]) -> list[Values]:
    """For every job, the values of the keys that vary in the sweep."""
    pairs = [dict(_key_and_value(override) for override in job) for job in jobs]
    swept = [key for key in pairs[0] if len({job.get(key) for job in pairs}) > 1] if pairs else []
    return [{key: job[key] for key in swept if key in job} for job in pairs]


def _key_and_value(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key, value


def _error_lines(errors: Mapping[str, Sequence[Values]], jobs: Sequence[Values]) -> Iterator[str]:
    wrong = sum(map(len, errors.values()))
    yield f"no job was started, as {wrong} of {len(jobs)} would fail"
    for text, members in errors.items():
        yield f"{text} ({_blamed(members, jobs)})"


def _blamed(members: Sequence[Values], jobs: Sequence[Values]) -> str:
    """Overrides that all jobs with an error share and no other jobs have; else the jobs' names."""
    if len(members) == len(jobs):
        return "in all jobs" if len(jobs) > 1 else "in the job"
    shared = dict(set.intersection(*(set(values.items()) for values in members)))
    with_them = [job for job in jobs if shared.items() <= job.items()]
    if shared and len(with_them) == len(members):
        number = len(members)
        return f"with {_typed(shared)}" + (f", in {number} jobs" if number > 1 else "")
    shown = "; ".join(_typed(values) for values in members[:MAX_SHOWN])
    return f"with {shown}" + ("; ..." if len(members) > MAX_SHOWN else "")


def _typed(values: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items())


def _refuse_shared_folders(jobs: Sequence[Job]) -> None:
    by_folder: dict[str, Job] = {}
    for job in jobs:
        other = by_folder.setdefault(os.path.abspath(job.run), job)
        if other is not job:
            raise ValueError(_shared_folder(other, job))


def _shared_folder(first: Job, second: Job) -> str:
    pairs = [(k, first.values.get(k), second.values.get(k)) for k in second.values]
    differing = [(key, one, other) for key, one, other in pairs if one != other]
    if not differing:
        return f"no job was started: two are the same ({' '.join(first.overrides)}); leave one out"
    one = _typed({key: value or "" for key, value, _ in differing})
    other = _typed({key: value or "" for key, _, value in differing})
    key = differing[0][0].lstrip("+")
    choice = "/" in key or ("." not in key and _is_choice(key))
    reference = f"${{hydra:runtime.choices.{key}}}" if choice else f"${{{key}}}"
    return (
        f"no job was started: {one} and {other} would share the folder {first.run}, whose name "
        f"leaves {key} out; name the runs by it: 'run_name=NAME${{label:}}-{reference}'"
    )


def _is_choice(key: str) -> bool:
    from captioning.commands.hydra_help import choices

    return bool(choices(key))


@dataclass(frozen=True, kw_only=True)
class Job:
    """Job of a sweep.

    Attributes:
        overrides: overrides on the command line, such as ``"optimizer.lr=1e-3"``.
        values: the values of the swept keys.
        run: folder of the job.
        was_finished: whether the job was finished before the sweep began.
    """

    overrides: tuple[str, ...]
    values: Mapping[str, str]
    run: Path
    was_finished: bool = False

    @property
    def name(self) -> str:
        """Overrides that distinguish this job from the others, as typed."""
        return shlex.join(f"{key}={value}" for key, value in self.values.items())

    def state(self) -> tuple[str, str]:
        """State of the job, and its error if it failed."""
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
    """Report on a sweep as text.

    Attributes:
        states: number of jobs by state.
        short: table and failed jobs, for the terminal.
        page: complete report, for ``sweep.md``.
        csv: the table's numbers; None without a finished run.
    """

    states: Mapping[str, int]
    short: str
    page: str
    csv: str | None


def report_sweep(jobs: Sequence[Job], *, name: str, command: str) -> Report:
    """Build the report of a sweep from the present state of its folders.

    Rows are the combinations of the swept values, pooled over seeds: mean and sample standard
    deviation. Runs that have not ended are left out of the table and listed.

    Args:
        jobs: all jobs, in order.
        name: the sweep's name.
        command: the command that started it.
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
    """Write ``sweep.md`` and, if a run has finished, ``sweep.csv``."""
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
    """Table of finished jobs, or why there is none."""
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
    """Headings of the table's first columns, by key in the config of `_with_values`."""
    keys = list(dict.fromkeys(key for job in jobs for key in job.values if key != POOLED))
    columns = {f"{_VALUES}.{number}": key for number, key in enumerate(keys)}
    if len({run.setting("data.name") for run in runs}) == 1:
        return columns
    # Scores of different data stand in rows of their own.
    return {key: name for key, name in columns.items() if name != "data"} | {"data.name": "data"}


def _with_values(job: Job) -> Run:
    """Run whose config holds the numbered swept values as typed."""
    run = read_run(job.run)
    values = [value for key, value in job.values.items() if key != POOLED]
    numbered = {str(number): value for number, value in enumerate(values)}
    return replace(run, config={**run.config, _VALUES: numbered})


def _metrics(runs: Sequence[Run]) -> list[str]:
    """All metrics of the runs, those of most papers first."""
    names = dict.fromkeys(name for run in runs for name in run.scores("test", "corpus"))
    return [
        *(n for n in DEFAULT_METRICS if n in names),
        *(n for n in names if n not in DEFAULT_METRICS),
    ]


def _readable(table: Table) -> Table:
    """Table with only its first columns."""
    shown = [
        name for name in table.metrics if name not in LEFT_OUT or "BLEU-4" not in table.metrics
    ]
    shown = shown[:MAX_METRICS]
    places = [table.metrics.index(name) for name in shown]
    rows = [replace(row, cells=tuple(row.cells[place] for place in places)) for row in table.rows]
    number = len(table.metrics) - len(shown)
    further = (f"further scores: sweep.csv has {number} more",) if number else ()
    return replace(table, metrics=tuple(shown), rows=tuple(rows), head=(*table.head, *further))
