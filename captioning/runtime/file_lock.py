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
    """Hold the lock file ``path``; yields whether it had to wait for another process.

    The kernel holds the lock (``flock``) and frees it as soon as the process ends, however it ends.
    A file that stays behind locks nobody out.

    Args:
        path: the lock file; its folder must exist. It stays behind, and names its last holder.
        subject: the object under construction, for the message to a process that waits.
        notify: shows one line to the user.
        poll_seconds: pause between two attempts.

    Raises:
        OSError: the file cannot be opened, or the file system knows no locks.
    """
    if weakness := lock_weakness(path):
        notify(f"{weakness}; let a single machine at a time build {subject}")
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
    """The lock file of a run folder: beside it, as ``resume=never`` renames the folder."""
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
    """Hold the lock file ``path`` of a folder that a single program may write to.

    Where the file system has no locks, it logs a warning and runs the block without one.

    Args:
        path: the lock file; folders are made. It stays behind, and names its last holder.
        subject: the folder, for messages.
        warn: shows one line to the user.
        seconds: how long to wait for the holder, which may be about to end.
        by_process: whether this process may hold it several times at once.

    Raises:
        ValueError: another process holds it, which is named.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, fallback_to_soft=False, is_singleton=by_process)
    weakness = lock_weakness(path)
    try:
        lock.acquire(timeout=seconds)
        _name_holder(path)
    except Timeout as error:
        raise ValueError(
            f"{subject} is in use by {_holder(path)}: wait for it, or choose another folder"
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
    """Why a lock on a file would not be seen by other machines; empty if it would, or who knows.

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
        return f"{folder} is {kind} with {option}: locks hold on a single machine"
    return ""


def _mount(line: str) -> tuple[str, str, set[str]]:
    """Folder, file system and options of a line of mountinfo."""
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
