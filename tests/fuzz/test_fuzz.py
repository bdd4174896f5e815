"""A short part: some damaged files for every reader; and the judge can tell what is wrong."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fuzz import harness
from tests.fuzz.harness import Subject, Target, fuzz, judge
from tests.fuzz.suite import TARGETS

INPUTS = 3


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_damaged_files_are_read_or_refused_in_a_line(target: Target, tmp_path: Path):
    outcome = fuzz(target, tmp_path / "fuzz", inputs=INPUTS, seed=1)
    assert outcome.failures == {}
    assert outcome.inputs >= INPUTS // 2
    assert outcome.read + outcome.refused == outcome.inputs


def raising(error: BaseException):
    def call() -> None:
        raise error

    return call


def test_the_judge_accepts_a_line_that_names_the_file_alone(monkeypatch):
    assert judge(lambda: None, ("a.json",)) == "read"
    assert judge(raising(ValueError("a.json: no JSON")), ("a.json",)) == "refused"
    assert judge(raising(OSError("a.json: gone")), ("a.json",)) == "refused"
    assert judge(raising(ValueError("no JSON")), ("a.json",)).startswith("names no file")
    assert judge(raising(ValueError("a.json:\n x")), ("a.json",)).startswith("several lines")
    assert judge(raising(KeyError("a.json")), ("a.json",)).startswith("KeyError")
    monkeypatch.setattr(harness, "SECONDS", 0.1)
    monkeypatch.setattr(harness.signal, "SIGALRM", harness.signal.SIGALRM)
    harness.signal.signal(harness.signal.SIGALRM, harness._hung)
    assert judge(lambda: time.sleep(5), ()).startswith("no end after")


def test_a_process_that_dies_is_told(tmp_path: Path):
    def make(folder: Path) -> Subject:
        path = folder / "a.json"
        path.write_text("{}")

        def call() -> None:
            if path.read_text() != "{}":
                harness.os.abort()

        return Subject(call=call, files=[path])

    outcome = fuzz(Target(name="dies", make=make), tmp_path / "fuzz", inputs=5, seed=0)
    assert outcome.failed == 1
    assert "the process ended with 6" in next(iter(outcome.failures))
