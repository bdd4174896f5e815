"""Java, for the scorers that need it: found once, run with a time limit, named when it fails."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

INSTALL_JAVA = "install one, e.g. `apt-get install default-jre-headless` (any Java 8 or newer)"
_TAIL = 800


class JavaError(RuntimeError):
    """Java is absent, crashed, or was killed after its time limit."""


@functools.cache
def find_java() -> tuple[str, str]:
    """Path and version of the Java that scorers use: ``JAVA_HOME`` first, then ``PATH``.

    Raises:
        JavaError: none is found or it does not start; the message says how to install one.
    """
    home = os.environ.get("JAVA_HOME")
    command = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    command = command or shutil.which("java")
    if command is None:
        raise JavaError(f"no Java on this machine: {INSTALL_JAVA}")
    try:
        done = subprocess.run([command, "-version"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"{command} does not start ({error}): {INSTALL_JAVA}") from error
    text = (done.stderr + done.stdout).decode(errors="replace")
    found = re.search(r'version "([^"]+)"', text)
    if done.returncode != 0 or found is None:
        raise JavaError(f"{command} is not a working Java: {INSTALL_JAVA}")
    return command, found.group(1)


def java_major(version: str) -> int:
    """Major version: 8 for ``1.8.0_402``, 17 for ``17.0.15``."""
    parts = re.split(r"[._+-]", version)
    return int(parts[1] if parts[0] == "1" else parts[0])


def run_java(
    arguments: Sequence[str], *, name: str, timeout: float, text: str = "", cwd: Path | None = None
) -> str:
    """Run Java to its end and return its standard output (UTF-8 both ways).

    Args:
        arguments: options, class or jar, and its arguments.
        name: what is run, for messages, such as ``"SPICE"``.
        timeout: seconds after which the process is killed.
        text: standard input.
        cwd: working directory.

    Raises:
        JavaError: Java is absent, ended with an error, or took longer than ``timeout``.
    """
    command, _ = find_java()
    try:
        done = subprocess.run(
            [command, *arguments],
            input=text.encode(errors="replace"),  # lone surrogates
            capture_output=True,
            timeout=timeout,
            cwd=cwd,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JavaError(
            f"{name}: Java was killed after {timeout:.0f} s without a result"
        ) from error
    if done.returncode != 0:
        tail = done.stderr.decode(errors="replace").strip()[-_TAIL:]
        raise JavaError(f"{name}: Java ended with status {done.returncode}: {tail or 'no message'}")
    return done.stdout.decode(errors="replace")
