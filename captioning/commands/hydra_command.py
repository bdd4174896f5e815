"""Run commands that have a Hydra config, and explain their errors."""

from __future__ import annotations

import errno
import os
import re
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioning.commands.command import INTERRUPTED, HydraCommand
from captioning.commands.hydra_help import help_text
from captioning.config.hydra_bends import FULL_ERROR, call_main, parsed_options, start_as_job

if TYPE_CHECKING:
    from omegaconf import DictConfig

_TRACEBACK = "Original Traceback (most recent call last)"
_CLASS = re.compile(r"^[\w.]+(Error|Exception): ")
# How PyTorch tells that a process which reads batches was killed, or has ended.
LOST_LOADER = "DataLoader worker"
OF_LOADERS = (
    "The system kills processes when memory runs out: lower loader.num_workers or "
    "loader.batch_size; when started again, a run resumes from where it was saved"
)
OF_PROCESSES = (
    "a process that this command started was killed, perhaps for memory (if it failed by itself, "
    "its error is above): lower the key num_processes of what starts it, and give the same "
    "command again"
)
# How PyTorch tells that a device is not there: it has no class for it.
NO_DEVICE = (
    "Found no NVIDIA driver",
    "No CUDA GPUs",
    "invalid device ordinal",
    "PyTorch is not linked with",
)


def run_hydra(command: HydraCommand, arguments: Sequence[str]) -> None:
    """Run a command: handle ``--help`` here and pass everything else to Hydra.

    User errors print one line and exit with status 1, Ctrl+C with 130; HYDRA_FULL_ERROR=1 adds the
    traceback.

    Raises:
        SystemExit: after an error, or after Hydra has shown the requested information.
    """
    if {"-h", "--help"} & set(arguments):
        print(help_text(command))
        return
    from hydra.errors import HydraException

    from captioning.commands.sweep import Sweep, sweeping
    from captioning.config.compose import VERSION_BASE, search_user_folder

    typed = arguments
    try:
        arguments = command.as_settings(typed)
    except ValueError as error:
        sys.exit(f"{command.name}: {error}")
    options = _parsed(command, arguments)
    search_user_folder()
    full_error = bool(os.environ.get(FULL_ERROR))
    task, given = _task(command, typed, options.config_dir), _given(command, arguments, options)
    try:
        how = {"full_error": full_error, "config_dir": options.config_dir}
        with sweeping(Sweep(command, line=shlex.join(sys.argv), **how)):
            call_main(task, given, config=command.config, version_base=VERSION_BASE)
    except (HydraException, ValueError, OSError) as error:
        if full_error:
            raise
        line = explained(error, command, options.overrides, config_dir=options.config_dir)
        sys.exit(f"{command.name}: {line}")


def explained(
    error: Exception,
    command: HydraCommand,
    overrides: Sequence[str],
    *,
    config_dir: str | None = None,
) -> str:
    """Problem and remedy of an error that Hydra raises before a command starts."""
    from hydra.errors import HydraException

    from captioning.commands.hydra_errors import explain_hydra_error

    # Hydra makes the folder of a run before the command begins.
    if not isinstance(error, HydraException | ValueError):
        remedy = "choose a writable folder: run_dir=FOLDER or paths.runs=FOLDER"
        return f"the run folder cannot be created: {error}; {remedy}"
    return explain_hydra_error(
        error, name=command.config, overrides=overrides, config_dir=config_dir
    )


def _task(
    command: HydraCommand, arguments: Sequence[str], users_folder: str | None
) -> Callable[[Any], float | None]:
    """Function that Hydra calls with the config of a run, or of each job of a sweep."""
    from captioning.commands.sweep import is_job_of_sweep, run_job

    program = _program(sys.argv, command, arguments)
    options = ["--config-dir", users_folder] if users_folder else []

    def task(config: Any) -> float | None:
        # Of a command that checks no jobs none is reported: an error ends its sweep.
        if command.check is None or not is_job_of_sweep():
            return run_task(command, config)
        start_as_job(program, command.name, options)
        return run_job(command.name, Path(config.run_dir), lambda: run_task(command, config))

    return task


def _parsed(command: HydraCommand, arguments: Sequence[str]) -> Namespace:
    """Hydra's options, and the settings as ``overrides``; raise an error for other options."""
    parsed, unknown = parsed_options(arguments)
    if unknown and not unknown[0].startswith("-"):  # Hydra reads one row of settings
        sys.exit(
            f"{command.name}: {unknown[0]} follows an option; write options such as -m "
            "before all settings, or after them"
        )
    if unknown:
        name, _, value = unknown[0].lstrip("-").partition("=")
        key = name.replace("-", "_")
        sys.exit(
            f"{command.name}: there is no option {unknown[0]}; settings are KEY=VALUE without "
            f"dashes: {key}={value or 'VALUE'}"
        )
    return parsed


def _given(command: HydraCommand, arguments: Sequence[str], options: Namespace) -> list[str]:
    """Arguments for Hydra, which composes a sweep's config before the configs of its jobs."""
    from captioning.commands.swept_groups import with_keys_of_jobs

    if not options.multirun or not options.overrides:
        return list(arguments)
    # Hydra reads one row of settings
    begin = arguments.index(options.overrides[0])
    end = begin + len(options.overrides)
    given = with_keys_of_jobs(command.config, options.overrides, options.config_dir)
    return [*arguments[:begin], *given, *arguments[end:]]


def _program(started: Sequence[str], command: HydraCommand, arguments: Sequence[str]) -> list[str]:
    """Program and subcommand, the words before the arguments."""
    program = list(started[: len(started) - len(arguments)])
    if list(started) == [*program, *arguments]:
        return program
    return ["captioning", *command.name.split()]  # called from Python


def _of_memory(error: Exception) -> bool:
    """Whether an error means that memory ran out; PyTorch may tell so only in the text."""
    signs = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in signs)


def _of_machine(error: Exception) -> str:
    """What the machine lacked, and the remedy; empty for other errors."""
    from concurrent.futures.process import BrokenProcessPool

    reason = str(error).partition("\n")[0] or "the machine has no more memory"
    if isinstance(error, BrokenProcessPool):
        return OF_PROCESSES
    if LOST_LOADER in str(error):
        return f"{reason} {OF_LOADERS}"
    if any(sign in str(error) for sign in NO_DEVICE):
        return f"{reason.rstrip('.')}; choose the device cpu or auto"
    if not _of_memory(error):
        return ""
    remedy = "" if "lower " in reason else "; choose smaller sizes or batch sizes"
    return f"not enough memory: {reason}{remedy}"


def _of_disk(error: Exception) -> str:
    """Remedy for a full disk, for errors that name neither file nor remedy."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
    if not isinstance(error, OSError) or error.errno not in full:
        return ""
    if error.filename or "free space" in str(error):
        return ""
    return "; free space where the command writes, and start it again: finished parts are kept"


def _without_traceback(text: str) -> str:
    """Error text without the traceback of a loader process that PyTorch puts before it."""
    if _TRACEBACK not in text:
        return text
    return _CLASS.sub("", text.strip().splitlines()[-1])


def perform(command: HydraCommand, composed: DictConfig) -> tuple[Any, dict[str, Any]]:
    """Check the config's values and call the command's task with them; errors are raised.

    Returns:
        The task's result, and its arguments; none of a task that takes the whole config.
    """
    from captioning.commands.first_look import look_first
    from captioning.commands.quick_imports import quick_imports
    from captioning.config.compose import trust
    from captioning.config.plugins import import_plugins, locate
    from captioning.config.tasks import arguments_of

    import_plugins(composed.get("plugins") or [])
    trust(composed)
    look_first(command.name, composed)
    if not isinstance(command.task, str):
        return command.task(composed), {}
    with quick_imports():
        task = locate(command.task)
    arguments = arguments_of(task, composed)
    return task(**arguments), arguments


def run_task(command: HydraCommand, config: Any) -> float | None:
    """Check the config's values, call the command's task, and print the result.

    See `run_hydra` for errors.
    """
    from omegaconf.errors import OmegaConfBaseException

    from captioning.training.signals import Stopped

    try:
        return command.show(*perform(command, config))
    except BrokenPipeError:
        raise
    except (ValueError, TypeError, OSError, ImportError, OmegaConfBaseException) as error:
        if os.environ.get(FULL_ERROR):
            raise
        told = f"{_without_traceback(str(error))}{_of_disk(error)}"
        sys.exit(f"{command.name}: {told}\n({FULL_ERROR}=1 shows where it was raised)")
    except (RuntimeError, MemoryError) as error:
        told = _of_machine(error)
        if os.environ.get(FULL_ERROR) or not told:
            raise
        sys.exit(f"{command.name}: {told}")
    except KeyboardInterrupt as stopped:
        print(f"{command.name}: {stopped or 'interrupted'}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except Stopped as stopped:
        if stopped.status:  # of several processes the first reports
            print(f"{command.name}: {stopped}", file=sys.stderr)
        sys.exit(stopped.status)
