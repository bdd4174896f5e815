"""A process that ends, ends all others within seconds, with a line that tells why."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from captioning.results.run_folder import RunFolder
from captioning.runtime.files import read_json
from captioning.training.processes import Ending, Lifeline, is_of_connections
from tests.captioning.training import ending_run

SECONDS = 10  # 3 on a quiet machine


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """The folder of all scenarios."""
    folder = tmp_path_factory.mktemp("endings")
    environment = {"PYTHONPATH": str(repository), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-m", "tests.late", ending_run.__file__, folder],
        env=os.environ | environment,
        capture_output=True,
        timeout=300,
        check=True,
    )
    return folder


def told(runs: Path, name: str) -> tuple[dict[str, Any], list[list[str]]]:
    """What happened in a scenario, and the lines that each process told."""
    record = read_json(runs / f"{name}.json")
    lines = [
        [line for line in text.splitlines() if line.startswith("train: ")]
        for text in record["errors"]
    ]
    assert record["seconds"] < SECONDS
    assert not any("Traceback" in text for text in record["errors"])
    torch.load(runs / name / "checkpoints" / "last.ckpt", weights_only=True)
    return record, lines


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "rank"), [("lost_1", 1), ("lost_0", 0), ("lost_1_while_0_waits", 1)]
)
def test_a_killed_process_ends_the_other(name: str, rank: int, runs: Path) -> None:
    record, lines = told(runs, name)
    assert record["status"][rank] == -9
    assert record["status"][1 - rank] == 1
    assert lines[rank] == []
    (line,) = lines[1 - rank]
    assert line.startswith(f"train: process {rank} of 2 (on {socket.gethostname()}) ended, and so")
    assert line.endswith(f"resume=auto resumes from {runs / name / 'checkpoints' / 'last.ckpt'}")


@pytest.mark.long
@pytest.mark.parametrize(("name", "rank"), [("failed_1", 1), ("failed_0_while_1_waits", 0)])
def test_an_error_of_one_process_is_told_once(name: str, rank: int, runs: Path) -> None:
    record, lines = told(runs, name)
    assert record["status"] == [1, 1]
    assert lines[rank] == ["train: photo 7 is broken"]
    (line,) = lines[1 - rank]
    assert f"process {rank} of 2" in line
    assert "ended with an error, which it told" in line


@pytest.mark.long
def test_an_error_of_all_processes_is_told_by_the_first(runs: Path) -> None:
    record, lines = told(runs, "both_failed")
    assert record["status"] == [1, 1]
    assert lines == [["train: photo 7 is broken"], []]


def pair(tmp_path: Path) -> list[Lifeline]:
    """Lifelines of two processes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        joined = socket.create_connection(server.getsockname())
        links = (server.accept()[0], joined)
    folder = RunFolder(tmp_path)
    return [
        Lifeline(rank=rank, world_size=2, links={link: (1 - rank, "host")}, folder=folder)
        for rank, link in enumerate(links)
    ]


def test_a_process_that_is_done_ends_nobody(tmp_path: Path) -> None:
    first, second = pair(tmp_path)
    second.tell(None)
    second.tell(ValueError("later"))
    assert not first._noticed.wait(0.5)
    for lifeline in (first, second):
        lifeline.leave()


def test_what_a_signal_stopped_is_told_as_such(tmp_path: Path) -> None:
    first, second = pair(tmp_path)
    second.tell(KeyboardInterrupt())
    assert first._noticed.wait(5)
    for lifeline in (first, second):
        lifeline.leave()
    assert first.ending == Ending(rank=1, host=socket.gethostname(), how="stopped")
    assert "ended by a signal" in first.line(first.ending)
    assert "the start, as no epoch had ended" in first.line(first.ending)


def test_errors_of_connections_are_told_from_others() -> None:
    assert is_of_connections(RuntimeError("[gloo/transport/tcp/pair.cc] Connection closed by peer"))
    assert is_of_connections(torch.distributed.DistBackendError("NCCL communicator was aborted"))
    assert not is_of_connections(RuntimeError("shapes do not match"))
    assert not is_of_connections(ValueError("no connection of words"))
