"""Cores that a container allows, and what OpenMP is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from captioning.runtime import cores


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of eight cores whose control groups are a folder."""
    monkeypatch.setattr(cores, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(cores, "OWN_CGROUP", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(os, "environ", {})
    return tmp_path


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


@pytest.mark.parametrize(
    ("own", "files", "number"),
    [
        ("0::/", {"cpu.max": "150000 100000"}, 2),
        ("0::/", {"cpu.max": "max 100000"}, 8),
        ("0::/", {"cpu.max": "1600000 100000"}, 8),
        ("0::/", {"cpu.max": "1000 100000"}, 1),
        ("0::/user/job", {"user/cpu.max": "300000 100000", "user/job/cpu.max": "max 100000"}, 3),
        ("0::/lost", {}, 8),
        ("4:cpu,cpuacct:/pod", {"cpu,cpuacct/cpu.cfs_quota_us": "400000"}, 4),
        ("4:cpu,cpuacct:/pod", {"cpu,cpuacct/pod/cpu.cfs_quota_us": "400000"}, 4),
        ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "-1"}, 8),
        ("4:cpuset:/", {"cpuset/cpu.cfs_quota_us": "100000"}, 8),
    ],
)
def test_a_container_may_allow_fewer_cores(groups: Path, own: str, files, number: int) -> None:
    put(groups / "own", own)
    for name, text in files.items():
        put(groups / "cgroup" / name, text)
        if name.endswith("quota_us"):
            put((groups / "cgroup" / name).with_name("cpu.cfs_period_us"), "100000")
    assert cores.num_cores() == number
    cores.set_up_openmp()
    limited = any(text[0].isdigit() for text in files.values()) and "cpuset" not in own
    assert os.environ.get("OMP_NUM_THREADS") == (str(number) if limited else None)


def test_no_control_groups_and_no_affinity(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores.num_cores() == 1


def test_what_the_user_has_set_remains(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(groups / "own", "0::/")
    put(groups / "cgroup" / "cpu.max", "200000 100000")
    monkeypatch.setattr(os, "environ", {"OMP_NUM_THREADS": "3", "GOMP_SPINCOUNT": "7"})
    cores.set_up_openmp()
    assert (os.environ["OMP_NUM_THREADS"], os.environ["GOMP_SPINCOUNT"]) == ("3", "7")


def test_commands_set_openmp_up_before_torch_is_there_and_imports_set_nothing() -> None:
    code = (
        "import os, sys; before = dict(os.environ); import captioning; import curation\n"
        "print(before == os.environ, 'torch' in sys.modules)\n"
        "from captioning.commands.main import main; main(['--version'])\n"
        "print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "GOMP_SPINCOUNT"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[:2] == ["True", "False"]
    assert done.stdout.split()[-2:] == [cores.SPIN_COUNT, "False"]


@pytest.mark.parametrize(
    ("limit", "free"), [("max", 5 * 1024), ("6000", 4700), ("9000000", 5 * 1024), ("100", 0)]
)
def test_memory_is_what_machine_and_container_leave(
    groups: Path, monkeypatch: pytest.MonkeyPatch, limit: str, free: int
) -> None:
    monkeypatch.setattr(cores, "MEMORY", groups / "meminfo")
    put(groups / "meminfo", "MemTotal:  9 kB\nMemAvailable:  5 kB")
    put(groups / "cgroup/memory.max", limit)
    put(groups / "cgroup/memory.current", "2000")
    put(groups / "cgroup/memory.stat", "anon 1\nactive_file 300\ninactive_file 400\nfile 700")
    assert cores.free_memory() == free
