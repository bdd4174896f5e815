"""A lock on a folder: one process builds, the others wait and say so."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout


@contextlib.contextmanager
def locked(
    path: Path, *, subject: str, notify: Callable[[str], None], poll_seconds: float = 0.2
) -> Iterator[bool]:
    """Hold the lock file ``path``; yields whether it had to wait for another process.

    The kernel holds the lock (``flock``) and frees it as soon as the process ends, however it ends.
    A file that stays behind locks nobody out.

    Args:
        path: the lock file; its folder must exist. It stays behind, and names its last holder.
        subject: what is being built, for the message to a process that waits.
        notify: shows one line to the user.
        poll_seconds: pause between two attempts.

    Raises:
        OSError: the file cannot be opened, or the file system knows no locks.
    """
    lock = FileLock(path, fallback_to_soft=False)  # a soft lock outlives a killed process
    try:
        waited = _acquire(lock, path, subject, notify, poll_seconds)
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise OSError(
                error.errno,
                f"{path.parent}: this file system has no locks; put the cache on a local disk "
                "(CAPTIONING_CACHE=FOLDER)",
            ) from error
        raise
    try:
        path.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        yield waited
    finally:
        lock.release()


def _acquire(
    lock: FileLock, path: Path, subject: str, notify: Callable[[str], None], poll_seconds: float
) -> bool:
    try:
        lock.acquire(blocking=False)
        return False
    except Timeout:
        notify(f"{subject} is being built by {_holder(path)}; waiting for it ({path})")
    lock.acquire(poll_interval=poll_seconds)
    return True


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text())
        return f"process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
