"""The processor cores that this process may use, and what OpenMP is told of them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
# How long a thread of torch waits at work before it sleeps. By its default, 300 times as long, it
# keeps a core from whoever has the work: beside other programs steps take four times as long.
SPIN_COUNT = "1000"


def num_cores() -> int:
    """Cores of the machine, fewer where a scheduler or a container allows fewer."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min([cores, *(math.ceil(limit) for limit in _limits())]))


def set_up_openmp() -> None:
    """Set what OpenMP reads when torch is imported, unless the user has set it.

    Torch counts the cores of the machine, not those of a container's limit.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
    if next(_limits(), None) is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(num_cores()))


def _limits() -> Iterator[float]:
    """Cores that the control groups of this process allow, as containers set them."""
    for line in _read(OWN_CGROUP).splitlines():
        for quota, period in _quotas(*line.split(":", 2)[1:]):
            if quota.isdigit() and period.isdigit() and int(period):
                yield int(quota) / int(period)


def _quotas(controllers: str, path: str) -> Iterator[tuple[str, str]]:
    """Microseconds of processor in a period, and the period, of a group and those around it."""
    tree = CGROUPS / controllers  # version 2 has one for all, and names none
    folder = tree / path.lstrip("/")
    for group in (folder, *(parent for parent in folder.parents if parent.is_relative_to(tree))):
        if not controllers:
            quota, _, period = _read(group / "cpu.max").partition(" ")
            yield quota, period
        elif "cpu" in controllers.split(","):
            yield _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:  # not of this system, or not for us to see
        return ""
