"""The study of novel objects makes what its rows begin with, and mixes no runs."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("study_novel_objects")


def test_rows_come_behind_those_that_they_begin_with(study):
    assert study.chain(["third_plc", "plb"]) == ["in_domain", "plb", "third", "third_plc"]
    assert study.chain(["all_pairs"]) == ["all_pairs"]


def test_runs_of_a_trial_are_not_taken_for_whole_ones(study, tmp_path):
    study.refuse_others(tmp_path, ["limit_images=50", "threads=1"])
    study.refuse_others(tmp_path, ["threads=2", "limit_images=50"])
    with pytest.raises(SystemExit, match=r"limit_images=50.*move the folder away"):
        study.refuse_others(tmp_path, ["threads=1"])
