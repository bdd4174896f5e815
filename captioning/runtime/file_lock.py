"""Locks on folders: one process builds, the others wait and log whom they wait for."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
# Options of network file systems with which a lock is not seen by other machines.
WEAK_LOCKS = {
    "nfs": {"nolock", "local_lock=flock", "local_lock=all"},
    "nfs4": {"local_lock=flock", "local_lock=all"},
    "lustre": {"localflock"},
}


@contextlib.contextmanager
def locked(
    path: Path, *, subject: str, notify: Callable[[str], None], poll_seconds: float = 0.2
) -> Iterator[bool]:
    """Hold the lock file ``path``; yield whether another process had to be waited for.

    The kernel holds the lock (``flock``) and frees it as soon as the process ends, however it ends.
    A leftover lock file blocks nobody.

    Args:
        path: the lock file; its folder must exist. It remains, and names its last holder.
        subject: the object under construction, for the message to a process that waits.
        notify: shows one line to the user.
        poll_seconds: pause between two attempts.

    Raises:
        OSError: the file cannot be opened, or the file system knows no locks.
    """
    if weakness := lock_weakness(path):
        notify(f"{weakness}; let only one machine at a time build {subject}")
    lock = FileLock(path, fallback_to_soft=False)  # a soft lock outlives a killed process
    try:
        waited = _acquire(lock, path, subject, notify, poll_seconds)
    except OSError as error:
        if error.errno in NO_LOCKS:
            raise OSError(
                error.errno,
                f"{path.parent}: this file system has no locks; put the cache on a local disk "
                "(CAPTIONING_CACHE=FOLDER)",
            ) from error
        raise
    try:
        _name_holder(path)
        yield waited
    finally:
        lock.release()


def lock_of(folder: Path) -> Path:
    """Path of a run folder's lock file: beside the folder, as ``resume=never`` renames that."""
    folder = folder.resolve()
    return folder.with_name(f".{folder.name}.lock")


@contextlib.contextmanager
def held(
    path: Path,
    *,
    subject: str,
    warn: Callable[[str], None],
    seconds: float = 0.0,
    by_process: bool = False,
) -> Iterator[None]:
    """Hold the lock file ``path`` of a folder that only one program may write to.

    On a file system without locks, log a warning and run the block without a lock.

    Args:
        path: the lock file; missing folders are created. It remains, and names its last holder.
        subject: the folder, for messages.
        warn: shows one line to the user.
        seconds: how long to wait for the holder, which may be about to end.
        by_process: whether this process may hold it several times at once.

    Raises:
        ValueError: another process holds the lock; the message names it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, fallback_to_soft=False, is_singleton=by_process)
    weakness = lock_weakness(path)
    try:
        lock.acquire(timeout=seconds)
        _name_holder(path)
    except Timeout as error:
        raise ValueError(
            f"{subject} is in use by {_holder(path)}: wait for it to end, or choose another folder"
        ) from error
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        weakness = f"{path.parent}: this file system has no locks"
    if weakness:
        warn(f"{weakness}; do not start {subject} twice")
    try:
        yield
    finally:
        lock.release()


def lock_weakness(path: Path, *, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Say why other machines may ignore a lock on this file; empty if they respect it or unknown.

    Args:
        path: path of the file, which need not exist.
        mounts: the kernel's list of mounted file systems.
    """
    if not mounts.is_file():
        return ""
    path, nearest = path.resolve(), ("", "", set[str]())
    for line in mounts.read_text(errors="replace").splitlines():
        folder, kind, options = _mount(line)
        if path.is_relative_to(folder) and len(folder) >= len(nearest[0]):
            nearest = (folder, kind, options)
    folder, kind, options = nearest
    for option in sorted(WEAK_LOCKS.get(kind, set()) & options):
        return f"{folder} is {kind} with {option}, where locks only hold on one machine"
    return ""


def _mount(line: str) -> tuple[str, str, set[str]]:
    """Parse a line of mountinfo into mount folder, file system type and options."""
    left, _, right = line.partition(" - ")
    place, system = left.split(), right.split()
    folder = place[4].replace("\\040", " ")  # the kernel writes blanks so
    return folder, system[0], {*place[5].split(","), *system[-1].split(",")}


def _name_holder(path: Path) -> None:
    path.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))


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
