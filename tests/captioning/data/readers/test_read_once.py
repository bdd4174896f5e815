"""Annotation files that several splits share."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from captioning.data.readers.many_samples import MANY, lasting_records
from captioning.data.readers.read_once import files_kept, read_once


def test_a_file_is_read_once_inside_and_not_kept_after() -> None:
    calls = []

    @read_once
    def read(path: str) -> list[str]:
        calls.append(path)
        return [path]

    with files_kept():
        assert read("a") is read("a")
        assert read("b") == ["b"]
    assert read("a") == ["a"]
    assert calls == ["a", "b", "a"]


@pytest.mark.long
def test_many_records_are_left_out_of_later_collections(monkeypatch) -> None:
    monkeypatch.setattr("captioning.data.readers.many_samples.MANY", 100)
    gc.unfreeze()
    always = gc.get_freeze_count()  # Python 3.12 has some that never go
    with lasting_records():
        records = [[number] for number in range(2000)]
    try:
        assert gc.isenabled()
        assert gc.get_freeze_count() >= len(records)
        with lasting_records():
            assert gc.get_freeze_count() == always, "what is needed no more can be collected again"
            assert not gc.isenabled()
    finally:
        gc.unfreeze()


@pytest.mark.long
def test_nothing_is_frozen_as_python_ends() -> None:
    code = f"""
import atexit, gc
atexit.register(lambda: print(gc.get_freeze_count()))  # called last
from captioning.data.readers.many_samples import lasting_records
with lasting_records():
    records = [[] for _ in range({MANY} + 1)]
print(gc.get_freeze_count())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    frozen, at_end = map(int, done.stdout.split())
    assert (frozen > MANY, at_end) == (True, 0)
