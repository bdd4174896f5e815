"""The benchmark runs to its end."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


def test_rates_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    bench = importlib.import_module("bench_ssa")
    # the benchmark wraps these in clocks; put back what they were
    for owner, name in (
        (bench.SpacyParser, "parse"),
        (bench.method, "read_words"),
        (bench.Merging, "merge_all"),
        (bench.merging, "agreement"),
        (bench.CrossFittedScores, "score"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    bench.main(["--scenes", "4"])
    printed = capsys.readouterr().out
    assert "4 photos, 20 captions read, " in printed
    assert "merging, smatch within" in printed
