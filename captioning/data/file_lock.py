"""A lock on a folder: one process builds, the others wait and say so."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def locked(
    path: Path, *, what: str, say: Callable[[str], None], poll_seconds: float = 0.2
) -> Iterator[bool]:
    """Hold the lock file ``path``; yields whether another process had to be waited for.

    The kernel holds the lock (``flock``), so that of a process that died, however it died, is free
    at once: a file that was left behind locks nobody out.

    Args:
        path: the lock file; its folder must exist. It stays behind, empty of meaning.
        what: what is being built, for the message to whoever waits.
        say: shows one line to the user.
        poll_seconds: pause between two attempts.

    Raises:
        OSError: the file cannot be opened, or the file system knows no locks.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        waited = _acquire(handle, path, what, say, poll_seconds)
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(holder).encode(), 0)
        try:
            yield waited
        finally:
            os.ftruncate(handle, 0)
            # Explicitly: a forked child that still has the file open must not keep the lock.
            fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def _acquire(
    handle: int, path: Path, what: str, say: Callable[[str], None], poll_seconds: float
) -> bool:
    waited = False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return waited
        except BlockingIOError:
            if not waited:
                say(f"{what} is being built by {_holder(handle)}; waiting for it ({path})")
            waited = True
            time.sleep(poll_seconds)
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP):
                raise OSError(
                    error.errno,
                    f"{path.parent}: this file system has no locks; put the cache on a local disk "
                    "(CAPTIONING_CACHE=FOLDER)",
                ) from error
            raise


def _holder(handle: int) -> str:
    try:
        holder = json.loads(os.pread(handle, 4096, 0))
        return f"process {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
