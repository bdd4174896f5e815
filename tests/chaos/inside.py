"""Faults that are brought about inside a command: full disks by file, clocks, lost helpers."""

from __future__ import annotations

import errno
import fnmatch
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

DAY = 86_400.0
PATTERN, PHOTO, AT = "CHAOS_PATTERN", "CHAOS_PHOTO", "CHAOS_AT"
FILLER, KEPT, GROUP = "CHAOS_FILLER", "CHAOS_KEPT", "CHAOS_GROUP"


def disk_full_for_a_kind() -> None:
    """No file of a pattern can be opened for writing, nor put in place: the disk is full."""
    pattern = os.environ[PATTERN]

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        name = ""
        if event == "open" and any(sign in str(arguments[1]) for sign in "wax+"):
            name = str(arguments[0])
        elif event == "os.rename":
            name = str(arguments[1])
        if name and fnmatch.fnmatch(name, pattern):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

    sys.addaudithook(refuse)


def clock_set_back() -> None:
    """The clock shows a day earlier, and once more so at each of the first hundred questions."""
    real, asked = time.time, [0]

    def earlier() -> float:
        asked[0] = min(asked[0] + 1, 100)
        return real() - DAY * asked[0]

    time.time = earlier
    time.time_ns = lambda: int(earlier() * 1e9)


def disk_fills() -> None:
    """After some updates another program takes all but a few bytes of the disk."""

    def fill() -> None:
        path = Path(os.environ[FILLER])
        with path.open("wb") as file:
            system = os.fstatvfs(file.fileno())
            room = system.f_bavail * system.f_frsize - int(os.environ[KEPT])
            os.posix_fallocate(file.fileno(), 0, max(room, 1))

    _after_updates(fill)


def loader_process_killed() -> None:
    """A process of the loader is killed after some updates, as where memory runs out."""
    _after_updates(_kill_a_child)


def memory_runs_out() -> None:
    """The group of the process is left with little memory after some updates, and takes it all."""

    def take() -> None:
        (Path(os.environ[GROUP]) / "cgroup.procs").write_text(str(os.getpid()))
        taken = []
        while True:  # until the system kills the process
            taken.append(b"1" * 2**20)

    _after_updates(take)


def photo_vanishes() -> None:
    """A photo is deleted after some updates."""
    _after_updates(lambda: Path(os.environ[PHOTO]).unlink(missing_ok=True))


def photo_is_cut() -> None:
    """A photo loses its second half after some updates."""

    def cut() -> None:
        path = Path(os.environ[PHOTO])
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data[: len(data) // 2])

    _after_updates(cut)


def _after_updates(act: Any) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    steps, at, owner = [0], int(os.environ.get(AT, "3")), os.getpid()

    def step(*unused: Any) -> None:
        steps[0] += 1
        if steps[0] == at and os.getpid() == owner:
            act()

    register_optimizer_step_post_hook(step)


def _kill_a_child() -> None:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            fields = (folder / "stat").read_text().rpartition(") ")[2].split()
            if int(fields[1]) == os.getpid():
                os.kill(int(folder.name), signal.SIGKILL)
                return
