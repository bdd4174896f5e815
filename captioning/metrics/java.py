"""Run Java for the scorers that need it, with a time limit and clear errors.

Java runs in its own process group, so all processes of a wrapper script end with it, and no
caller waits for an orphan's pipe. Java also ends when this process ends in any way: see `_GUARD`.
If a Java process crashes or hangs, it is killed and retried once, see `try_twice`.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import shutil
import signal
import subprocess
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TypeVar

T = TypeVar("T")

INSTALL_JAVA = (
    "install Java 8 or newer, e.g. `apt-get install default-jre-headless`, or unpack Java "
    "anywhere and set JAVA_HOME"
)
# Starts Java beside a watcher, which waits for the end of a pipe that only this process holds open
# for writing. The pipe ends with this process, even by SIGKILL; then the watcher kills the group.
# (The kernel's signal PDEATHSIG would come as soon as the thread ends that started Java.)
# The watcher holds none of Java's own pipes, so nobody waits for it.
_GUARD = '(read -r _ </dev/fd/{pipe}; kill -9 0) </dev/null >/dev/null 2>&1 & exec "$@"'
# Java formats numbers by the user's locale: METEOR's own "0.25" fails where it is "0,25".
_LOCALE = ("-Duser.language=en", "-Duser.country=US")
MAX_MESSAGE_LENGTH = 800
_LOGGER = logging.getLogger(__name__)
_lock = threading.Lock()
_running: set[subprocess.Popen[bytes]] = set()
# writing ends of the watchers' pipes, see `_GUARD`
_lifelines: dict[subprocess.Popen[bytes], int] = {}
_stopped: weakref.WeakSet[subprocess.Popen[bytes]] = weakref.WeakSet()


class JavaError(RuntimeError):
    """Java is missing, crashed, timed out, or was stopped by `stop_java`.

    Args:
        message: the scorer, the problem, and the remedy if there is one.
        stopped: whether the user stopped Java, so it must not be retried.
    """

    def __init__(self, message: str, *, stopped: bool = False) -> None:
        super().__init__(message)
        self.stopped = stopped


@functools.cache
def find_java() -> tuple[str, str]:
    """Return path and version of the Java for scorers: ``JAVA_HOME`` first, then ``PATH``.

    Raises:
        JavaError: Java is missing or does not start; the message says how to install it.
    """
    home = os.environ.get("JAVA_HOME")
    command = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    command = command or shutil.which("java")
    if command is None:
        raise JavaError(f"Java not found: {INSTALL_JAVA}")
    try:
        done = subprocess.run([command, "-version"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"{command} does not start ({error}): {INSTALL_JAVA}") from error
    text = (done.stderr + done.stdout).decode(errors="replace")
    match = re.search(r'version "([^"]+)"', text)
    if done.returncode != 0 or match is None:
        raise JavaError(f"{command} is not a working Java: {INSTALL_JAVA}")
    return command, match.group(1)


def java_major(version: str) -> int:
    """Return the major version: 8 for ``1.8.0_402``, 17 for ``17.0.15``."""
    parts = re.split(r"[._+-]", version)
    return int(parts[1] if parts[0] == "1" else parts[0])


def start_java(
    arguments: Sequence[str],
    *,
    cwd: Path | None = None,
    stderr: int | IO[bytes] = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """Start Java with pipes for standard input and output; end it with `kill_java`.

    Numbers have a decimal point in any locale.

    Raises:
        JavaError: Java is missing or does not start.
    """
    command, _ = find_java()
    watched, lifeline = os.pipe()
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD.format(pipe=watched), "sh", command, *_LOCALE, *arguments],
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            pass_fds=[watched],
            process_group=0,
        )
    except OSError as error:
        os.close(lifeline)
        raise JavaError(f"{command} does not start ({error}): {INSTALL_JAVA}") from error
    finally:
        os.close(watched)
    with _lock:
        _running.add(process)
        _lifelines[process] = lifeline
    return process


def kill_java(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with all its children, and wait for its end."""
    with _lock:
        _running.discard(process)
        lifeline = _lifelines.pop(process, None)
    _kill_group(process)
    if lifeline is not None:
        os.close(lifeline)
    process.wait()


def stop_java() -> None:
    """Kill all Java processes at once, as on a user interrupt; waiting callers get an error."""
    with _lock:
        _stopped.update(_running)
        _running.clear()
        for process in _stopped:
            _kill_group(process)


def was_stopped(process: subprocess.Popen[bytes]) -> bool:
    """Whether `stop_java` ended a process."""
    with _lock:
        return process in _stopped


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    # a process that has ended may have passed its number to another process
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def try_twice(work: Callable[[bool], T]) -> T:
    """Call ``work(False)``; if Java crashes or hangs, call ``work(True)`` once.

    Raises:
        JavaError: after the second failure; immediately if Java is missing or was stopped.
    """
    try:
        return work(False)
    except JavaError as error:
        if error.stopped:
            raise
        find_java()
        _LOGGER.warning("%s; retrying once", error)
    return work(True)


def run_java(
    arguments: Sequence[str], *, name: str, timeout: float, text: str = "", cwd: Path | None = None
) -> str:
    """Run Java once and return its standard output (input and output are UTF-8).

    Args:
        arguments: Java options, class or jar file, and its arguments.
        name: program name for messages, such as ``"SPICE"``.
        timeout: seconds after which the process is killed.
        text: standard input; lone surrogates are replaced by ``?``.
        cwd: working directory.

    Raises:
        JavaError: Java is missing, failed, or exceeded ``timeout``.
    """
    with start_java(arguments, cwd=cwd) as process:
        try:
            out, err = process.communicate(text.encode(errors="replace"), timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise JavaError(
                f"{name}: Java was killed after {timeout:.0f} s without a result"
            ) from error
        finally:
            kill_java(process)
    if was_stopped(process):
        raise JavaError(f"{name}: stopped", stopped=True)
    if process.returncode != 0:
        tail = err.decode(errors="replace").strip()[-MAX_MESSAGE_LENGTH:]
        raise JavaError(
            f"{name}: Java failed with status {process.returncode}: {tail or 'no message'}"
        )
    return out.decode(errors="replace")
