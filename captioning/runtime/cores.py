"""CPU cores, OpenMP threads and freed memory that this process uses."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
MEMORY = Path("/proc/meminfo")
# How long a thread of torch waits at work before it sleeps. By its default, 300 times as long, it
# keeps a core from whoever has the work: beside other programs steps take four times as long.
SPIN_COUNT = "1000"
# Numbers of settings in glibc's malloc.h.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
LARGEST_KEPT = 2**30  # bytes of a tensor; larger ones go back to the system
LARGEST_KEPT_BY_OLDER = 2**25  # older versions of glibc refuse more
NEVER = -1
BETWEEN = 20  # steps
USERS_OWN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


def num_cores() -> int:
    """Number of CPU cores that this process may use, by machine, scheduler and container."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min([cores, *(math.ceil(limit) for limit in _limits())]))


def set_up_openmp() -> None:
    """Set the environment variables that OpenMP reads on import of torch, unless the user set them.

    By itself torch counts all cores of the machine and ignores a container's limit.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
    if next(_limits(), None) is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(num_cores()))


def _limits() -> Iterator[float]:
    """CPU limits, in cores, of this process's control groups (cgroups), as containers set them."""
    for line in _read(OWN_CGROUP).splitlines():
        for quota, period in _quotas(*line.split(":", 2)[1:]):
            if quota.isdigit() and period.isdigit() and int(period):
                yield int(quota) / int(period)


def _quotas(controllers: str, path: str) -> Iterator[tuple[str, str]]:
    """CPU quota and period, in microseconds, of a control group and of each group around it."""
    tree = CGROUPS / controllers  # version 2 has one for all, and names none
    folder = tree / path.lstrip("/")
    for group in (folder, *(parent for parent in folder.parents if parent.is_relative_to(tree))):
        if not controllers:
            quota, _, period = _read(group / "cpu.max").partition(" ")
            yield quota, period
        elif "cpu" in controllers.split(","):
            yield _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")


def free_memory() -> int:
    """Bytes of memory that this process may still allocate, by machine and by container limit."""
    rows = (line.partition(":") for line in _read(MEMORY).splitlines())
    available = {name: value for name, _, value in rows}.get("MemAvailable", "")
    if available:
        free = int(available.split()[0]) * 1024
    else:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit, used = (_read(CGROUPS / f"memory.{name}") for name in ("max", "current"))
    if limit.isdigit() and used.isdigit():
        rows = (line.split() for line in _read(CGROUPS / "memory.stat").splitlines())
        files = sum(int(size) for name, size in rows if name in ("active_file", "inactive_file"))
        free = min(free, int(limit) - int(used) + files)  # what is read of files can be let go
    return max(0, free)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:  # not of this system, or not for us to see
        return ""


class _Kept:
    """State of the memory kept by `keep_freed_memory`: how to release it, and a count of steps."""

    give_back: Callable[[int], int] | None = None
    steps = itertools.count(1)


def keep_freed_memory() -> None:
    """Keep freed memory in this process, so that the next training step can use it again.

    By default glibc returns the memory of large tensors to the system, which clears it page by page
    when the next step takes it: a tenth of a training step on a CPU. The function changes nothing
    where the user has configured glibc, and no other library's allocator.
    """
    set_by_user = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform != "linux" or set_by_user or any(name in os.environ for name in USERS_OWN):
        return
    with contextlib.suppress(AttributeError):  # a C library without it, such as musl
        library = ctypes.CDLL(None)
        set_option = library.mallopt
        sizes = (LARGEST_KEPT, LARGEST_KEPT_BY_OLDER)
        # Alone the second setting would be worse than none: it stops glibc from raising the first.
        if any(set_option(MMAP_THRESHOLD, size) for size in sizes):
            set_option(TRIM_THRESHOLD, NEVER)
            _Kept.give_back = library.malloc_trim


def step_ended() -> None:
    """Return kept memory to the system every `BETWEEN` steps, where `keep_freed_memory` keeps it.

    Batches of differing lengths leave holes in which later tensors do not fit, so that memory would
    grow throughout training.
    """
    if next(_Kept.steps) % BETWEEN == 0 and _Kept.give_back is not None:
        _Kept.give_back(0)
