"""Workarounds for Hydra and its launchers, with reasons; other modules use Hydra's public API.

Imports are lazy, so commands can start without Hydra.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioning.config.folders import config_folder

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath

FULL_ERROR = "HYDRA_FULL_ERROR"
_OF_SWEEP = re.compile(r"[+~]*hydra[./](mode|launcher|sweeper|sweep|job\.env_set)\b")


@functools.cache
def let_overrides_fill_empty_mappings() -> None:
    """Let overrides add keys to mappings that are empty by default, such as template options.

    Reason: Hydra locks the whole config before it applies overrides, without a public hook
    between. Configs of other programs stay closed.
    """
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.global_hydra import GlobalHydra

    apply = ConfigLoaderImpl._apply_overrides_to_config

    def apply_to_open(overrides: list[Any], cfg: Any) -> None:
        hydra = GlobalHydra.instance().hydra
        if hydra is None or reads_own_configs(hydra.config_loader.get_search_path()):
            _open_groups(cfg)
        apply(overrides, cfg)

    ConfigLoaderImpl._apply_overrides_to_config = staticmethod(apply_to_open)


def reads_own_configs(search_path: ConfigSearchPath) -> bool:
    """Whether Hydra searches the project's config folder."""
    paths = [Path(item.path.removeprefix("file://")) for item in search_path.get_path()]
    return any(path.resolve() == config_folder().resolve() for path in paths)


def _open_groups(config: Any) -> None:
    """Open a config for new keys, but keep empty groups such as ``steps`` closed."""
    from omegaconf import DictConfig

    groups = {path.name for path in config_folder().iterdir() if path.is_dir()}
    for key in config:
        node = config._get_node(key)
        is_closed = key == "hydra" or (key in groups and not node)
        if isinstance(node, DictConfig) and not is_closed:
            _open_empty(node)


def _open_empty(node: Any) -> None:
    from omegaconf import DictConfig, OmegaConf

    if node._is_none() or node._is_missing() or node._is_interpolation():
        return
    if not node:
        OmegaConf.set_struct(node, False)
    for key in node:
        child = node._get_node(key)
        if isinstance(child, DictConfig):
            _open_empty(child)


def parsed_options(arguments: Sequence[str]) -> tuple[Namespace, list[str]]:
    """Parse Hydra's options, with settings as ``overrides``; return them and unknown options.

    Reason: ``hydra.main`` reports a wrong command line with its own usage, without the subcommand.
    """
    from hydra._internal.utils import get_args_parser

    return get_args_parser().parse_known_args(list(arguments))


def call_main(
    task: Callable[[Any], float | None], arguments: Sequence[str], *, config: str, version_base: str
) -> None:
    """Run a task through ``hydra.main`` with a given command line; errors are raised unchanged.

    Reason: Hydra reads arguments only from ``sys.argv``, prints errors itself and exits unless
    ``HYDRA_FULL_ERROR`` is set. The task sees both restored, in any process: Lightning starts
    further processes with ``sys.argv``, so ``sys.argv`` must hold the subcommand.

    Args:
        task: function that receives the config of the run, or of each job of a sweep.
        arguments: command-line arguments after program and subcommand.
        config: name of a file in the config folder.
        version_base: Hydra's ``version_base``.
    """
    import hydra

    started, full_error = list(sys.argv), os.environ.get(FULL_ERROR)

    def undisturbed(settings: Any) -> float | None:
        _set(started, full_error)
        return task(settings)

    _set([started[0], *arguments], full_error or "1")
    try:
        location = {"config_path": str(config_folder()), "config_name": config}
        hydra.main(version_base=version_base, **location)(undisturbed)()
    finally:
        _set(started, full_error)


def _set(arguments: Sequence[str], full_error: str | None) -> None:
    sys.argv = list(arguments)
    if full_error is None:
        os.environ.pop(FULL_ERROR, None)
    else:
        os.environ[FULL_ERROR] = full_error


def start_as_job(program: Sequence[str], name: str, options: Sequence[str]) -> None:
    """Replace this process's command line by the command line of its job in a sweep.

    Reason: Lightning starts further processes of a run with ``sys.argv`` and ``__main__``. Both
    belong to the whole sweep, or to a worker of joblib or submitit.

    Args:
        program: the program that started the sweep, before its arguments.
        name: the command's name.
        options: Hydra options that jobs need.
    """
    from hydra.core.hydra_config import HydraConfig

    from captioning.config.run_names import plain_lines

    main = sys.modules["__main__"]
    if (spec := main.__spec__) is not None and spec.name.partition(".")[0] != "captioning":
        main.__spec__ = find_spec("captioning.__main__")
        program = ["captioning", *name.split()]
    overrides = HydraConfig.get().overrides
    of_hydra = [line for line in plain_lines(overrides.hydra) if not _OF_SWEEP.match(line)]
    sys.argv = [*program, *options, *of_hydra, *plain_lines(overrides.task)]


@contextmanager
def lost_jobs_kept(report: Callable[[Sequence[str], str], None]) -> Iterator[None]:
    """Make Hydra's submitit launcher treat a lost job as a job without a score.

    Reason: the launcher waits for every job and stops at the first without a result: cancelled,
    out of time or memory, or on a failed node. The results of later jobs would be lost.

    Args:
        report: called with a lost job's overrides and the reason.
    """
    if find_spec("submitit") is None:
        yield
        return
    from submitit.core.core import Job
    from submitit.core.utils import UncompletedJobError

    results = Job.results

    def patient(job: Any) -> list[Any]:
        from hydra.core.utils import JobReturn, JobStatus

        try:
            return results(job)
        except UncompletedJobError as error:
            report(job.submission().args[0], _reason(job, error))
            return [JobReturn(status=JobStatus.COMPLETED)]

    Job.results = patient  # type: ignore[method-assign]
    try:
        yield
    finally:
        Job.results = results  # type: ignore[method-assign]


def _reason(job: Any, error: Exception) -> str:
    """Return why a job has no result: its state in the queue, or its last error line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    has_error = lines and "has not produced any output" not in lines[0]
    why = lines[-1] if has_error else "cancelled, out of memory or time, or its node failed"
    log = job.paths.stderr if job.paths.stderr.is_file() else job.paths.stdout
    return f"job {job.job_id} ended without a result (state {job.state}): {why}; its output: {log}"
