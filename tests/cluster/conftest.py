"""One Slurm for all tests of a session, and a record of what they came to."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from captioning.results.versions import versions
from captioning.runtime.files import write_lines
from tests.cluster.slurm import LocalSlurm, missing, search_path

# They take minutes of both cores, so a run of all tests leaves them out.
REQUESTED, RECORD = "CLUSTER_TESTS", "CLUSTER_RECORD"
SUITES = {"test_slurm.py": "Slurm", "test_ray.py": "Ray"}
_outcomes: list[dict[str, Any]] = []
_seconds: list[float] = []


@pytest.fixture(scope="session")
def slurm() -> Iterator[LocalSlurm]:
    """A running Slurm; skips the test where there is none to start."""
    if not os.environ.get(REQUESTED):
        pytest.skip(f"runs under Slurm: make cluster-test, or {REQUESTED}=1")
    if reason := missing():
        pytest.skip(reason)
    # short, as sockets have short paths
    with tempfile.TemporaryDirectory(prefix="slurm", dir="/tmp") as folder:
        slurm = LocalSlurm(Path(folder))
        try:
            yield slurm.start()
        finally:
            slurm.stop()


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parent of all runs."""
    return tmp_path_factory.mktemp("cluster")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep outcome and seconds of every test of this folder."""
    suite = SUITES.get(report.nodeid.partition("::")[0].rpartition("/")[2])
    if suite is None:
        return
    if report.when != "call" and report.passed:  # what is made for several tests counts as well
        _seconds.append(report.duration)
        return
    name = report.nodeid.rpartition("::")[2].removeprefix("test_").replace("_", " ")
    seconds = round(report.duration + sum(_seconds))
    _seconds.clear()
    outcome = {"suite": suite, "test": name, "outcome": report.outcome, "seconds": seconds}
    _outcomes.append(outcome)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the outcomes into the record that ``CLUSTER_RECORD`` names."""
    path = os.environ.get(RECORD)
    if not path or not _outcomes:
        return
    facts = versions()
    run = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": "make cluster-test",
        "commit": facts["commit"],
        "machine": facts["machine"],
        "python": platform.python_version(),
        "torch": facts["torch"],
        "slurm": _slurm_version(),
        "ray": _ray_version(),
        "load_average": round(os.getloadavg()[2], 1),
    }
    write_lines(path, (json.dumps({**outcome, **run}) for outcome in _outcomes))


def _ray_version() -> str:
    try:
        return f"ray {version('ray')}"
    except PackageNotFoundError:
        return ""


def _slurm_version() -> str:
    program = shutil.which("slurmd", path=search_path())
    if program is None:
        return ""
    done = subprocess.run([program, "-V"], capture_output=True, text=True, check=False)
    return done.stdout.strip()
