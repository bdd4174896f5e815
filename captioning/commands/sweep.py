"""A sweep (``-m``): no job begins before all are checked, none ends the others, a table at the end.

`run_hydra` makes a `Sweep`; Hydra's callback, which the command's config names, begins and ends it.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from captioning.commands.command import INTERRUPTED, HydraCommand
from captioning.config.hydra_bends import FULL_ERROR, lost_jobs_kept

# Names the sweep to its jobs: the group of wandb and the tag of MLflow.
SWEEP = "CAPTIONING_SWEEP"
BASIC = "basic"  # Hydra's own sweeper
FOLDER = "sweeps"  # below the folder of all runs
MAX_NAME = 60  # characters, without the digest

_current: list[Sweep] = []


class SweepCallback(Callback):
    """What Hydra calls when a sweep begins and when it has ended."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Check all jobs before the first begins."""
        for sweep in _current:
            try:
                sweep.begin(config)
            except Exception as error:  # noqa: BLE001 - Hydra would warn of it and go on
                sys.exit(
                    f"the jobs of this sweep cannot be checked: {type(error).__name__}: {error}"
                )

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """Print and write the table."""
        for sweep in _current:
            sweep.end()


class Sweep:
    """The jobs of one command.

    Args:
        command: what they run.
        line: the command line, for the report.
        full_error: show where an error of the launcher was raised.
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
        """Compose and check every job; give the sweep its name.

        Raises:
            SystemExit: a wrong config, or two jobs with one folder; nothing was started.
        """
        from captioning.commands.sweep_check import Checker, sweep_lines, sweep_overrides

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
        """Keep the error of a job that could not keep one itself, as a queue ended it."""
        from captioning.results.run_folder import failure_of, keep_failure

        for job in self._jobs:
            if job.overrides == tuple(overrides) and failure_of(job.run) is None:
                keep_failure(job.run, error)

    def end(self) -> None:
        """Print and write the report, once."""
        if not self.is_open:
            return
        from captioning.results.sweep_results import FAILED, UNFINISHED, report_sweep, write_report

        self.is_open = False
        report = report_sweep(self._jobs, name=self._folder.name, command=self._line)
        write_report(self._folder, report)
        print(f"\n{report.short}\nsweep: {self._folder / 'sweep.md'}", flush=True)
        self.num_lost = sum(report.states.get(kind, 0) for kind in (FAILED, UNFINISHED))


def _check_devices(devices: Any, name: str) -> None:
    """Slurm is asked for a task a device, so their number must be known."""
    if not isinstance(devices, int) or devices < 1:
        sys.exit(
            f"{name}: trainer.devices={devices}: under hydra/launcher=slurm it must be a number of "
            "at least 1, as each device is a task of the job; no job was queued"
        )


@contextmanager
def sweeping(sweep: Sweep) -> Iterator[None]:
    """Let Hydra's callback begin and end the sweep; one that ends early has its report, too.

    Raises:
        SystemExit: with status 1 if a job did not finish.
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
            f"{sweep.name}: the launcher ended: {_launcher_error(error)}; the same command goes on"
        )
    except KeyboardInterrupt:
        if not sweep.is_open:
            raise
        sweep.end()
        print("interrupted; the same command goes on; jobs in a queue stay there", file=sys.stderr)
        sys.exit(INTERRUPTED)
    finally:
        _current.remove(sweep)
        sweep.end()
    if sweep.num_lost:
        sys.exit(1)


def _launcher_error(error: Exception) -> str:
    if type(error).__name__ == "TerminatedWorkerError":  # joblib's, which need not be installed
        return "a job was killed, perhaps for want of memory, and joblib ends all with one"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def is_job_of_sweep() -> bool:
    """Whether this is a job of a sweep whose jobs do not end each other."""
    if not HydraConfig.initialized():
        return False
    hydra = HydraConfig.get()
    # Other sweepers need the error itself, or the score.
    is_basic = hydra.runtime.choices["hydra/sweeper"] == BASIC
    return is_basic and hydra.mode == RunMode.MULTIRUN and "sweep" in (hydra.callbacks or {})


def run_job(name: str, run: Path, task: Callable[[], float | None]) -> float | None:
    """Run a job of a sweep; an error is kept in its folder and ends it alone.

    Args:
        name: of the command, for messages.
        run: the job's folder.
        task: what it does.

    Raises:
        SystemExit, KeyboardInterrupt: what was stopped from outside ends the sweep.
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
    """Undo what would make the next job in this process take part in the group of this one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
    for key in set(os.environ) - set(environment):
        del os.environ[key]
    os.environ.update(environment)


def sweep_name(task: Sequence[str], jobs: Sequence[Sequence[str]]) -> str:
    """A name that is the same whenever the sweep is started again.

    Args:
        task: overrides of the whole sweep; their order, and what changes no result, play no part.
        jobs: those of each job.
    """
    from captioning.commands.sweep_check import swept_values
    from captioning.results.run_folder import FREE_KEYS

    counting = sorted(line for line in task if not line.lstrip("+").startswith(FREE_KEYS))
    digest = hashlib.sha256("\n".join(counting).encode()).hexdigest()[:8]
    keys = sorted(swept_values(jobs)[0]) if jobs else []
    words = re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(keys))[:MAX_NAME]
    return f"{words or 'sweep'}-{digest}"
