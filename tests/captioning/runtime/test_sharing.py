"""Work shared out over processes, with the processes played."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from captioning.runtime.sharing import by_first, distribute, end_with_parent, rank_and_size


@pytest.fixture
def second_of_three(monkeypatch):
    """This process is number 1 of 3; the others' answers are put in."""
    other_results: dict[int, tuple[dict[str, str], str | None]]
    other_results = {0: ({"a": "bad"}, None), 2: ({}, None)}

    def gather(gathered, own_result):
        gathered[:] = [other_results.get(number, own_result) for number in range(3)]

    for name, value in {
        "is_initialized": lambda: True,
        "get_rank": lambda: 1,
        "get_world_size": lambda: 3,
        "all_gather_object": gather,
    }.items():
        monkeypatch.setattr(dist, name, value)
    return other_results


def test_a_process_alone_does_all():
    assert rank_and_size() == (0, 1)
    assert distribute("abc", lambda part: dict.fromkeys(part, "x")) == dict.fromkeys("abc", "x")


def test_each_does_its_share_and_knows_of_all(second_of_three):
    seen = []

    def work(part):
        seen.extend(part)
        return {"b": "worse"}

    assert distribute("abcdefgh", work) == {"a": "bad", "b": "worse"}
    assert seen == ["b", "e", "h"]


def test_processes_meet_after_some_of_their_work(second_of_three, monkeypatch):
    parts, meetings, gather = [], [], dist.all_gather_object
    monkeypatch.setattr(
        dist, "all_gather_object", lambda *results: (meetings.append(len(parts)), gather(*results))
    )
    work = lambda part: parts.append(part) or dict.fromkeys(part, "x")  # noqa: E731
    results = distribute("abcdefghijklm", work, at_once=2)
    assert parts == ["be", "hk", ""]
    assert meetings == [1, 2, 3]
    assert results == {"a": "bad", **dict.fromkeys("behk", "x")}


def test_a_failure_here_is_raised_after_the_others_know(second_of_three):
    def fail(part):
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        distribute("abc", fail)


def test_a_failure_without_a_text_is_told_by_its_kind(second_of_three, monkeypatch):
    told = []
    monkeypatch.setattr(dist, "all_gather_object", lambda _, own: told.append(own[1]))

    def fail(part):
        raise MemoryError

    with pytest.raises(MemoryError):
        distribute("abc", fail)
    assert told == ["MemoryError"]


def test_a_failure_elsewhere_is_raised_here(second_of_three):
    second_of_three[2] = ({}, "the disk is full")
    with pytest.raises(RuntimeError, match="process 2 could not do its share: the disk is"):
        distribute("abc", lambda part: {})


def by_two_processes(script: str, folder: Path, repository: Path) -> list[str]:
    """What each of two processes that run a script prints."""
    head = """
import sys, torch.distributed as dist
from captioning.runtime.sharing import by_first
rank = int(sys.argv[1])
store = dist.FileStore(sys.argv[2], 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
def work():
    print("works", end=" ")
    return do()
"""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", head + script, str(rank), str(folder / "store")],
            env=os.environ | {"PYTHONPATH": str(repository)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    return [child.communicate(timeout=100)[0] for child in started]


@pytest.mark.long
def test_the_first_process_works_for_all(tmp_path: Path, repository: Path):
    script = """
do = lambda: {"CIDEr-D": 1.25}
print(by_first(work), by_first(lambda: rank), by_first(lambda: None))
"""
    assert by_two_processes(script, tmp_path, repository) == [
        "works {'CIDEr-D': 1.25} 0 None\n",
        "{'CIDEr-D': 1.25} 0 None\n",
    ]


@pytest.mark.long
def test_an_error_of_the_first_process_ends_all(tmp_path: Path, repository: Path):
    script = """
def do():
    raise OSError("the disk is full")
try:
    by_first(work)
except Exception as error:
    print(repr(error))
"""
    assert by_two_processes(script, tmp_path, repository) == [
        "works OSError('the disk is full')\n",
        "RuntimeError('the disk is full')\n",
    ]


def test_a_process_alone_works_itself():
    assert by_first(lambda: "alone") == "alone"


def test_a_worker_ends_as_its_parent_does(monkeypatch):
    sentinel, parent = os.pipe()
    ended = threading.Event()
    played = SimpleNamespace(sentinel=sentinel)
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: played)
    monkeypatch.setattr(os, "_exit", lambda status: ended.set())
    end_with_parent()
    assert not ended.wait(0.1)
    os.close(parent)  # as the kernel does for a killed process
    assert ended.wait(10)
    os.close(sentinel)


def test_a_process_of_the_users_goes_on():
    threads = threading.active_count()
    end_with_parent()
    assert threading.active_count() == threads
