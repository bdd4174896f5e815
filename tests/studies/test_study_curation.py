"""The benchmark of curation trains with the faults that it is asked for."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

STUDIES = Path(__file__).resolve().parents[2] / "studies"


@pytest.mark.parametrize(
    ("noise", "steps", "share"),
    [("none", "steps=[]", 0.05), ("mixed", "steps=[plant_mixed]", 0.3)],
)
def test_as_much_is_suspected_as_was_planted(monkeypatch, noise, steps, share):
    monkeypatch.syspath_prepend(str(STUDIES))
    study = importlib.import_module("study_curation")
    commands = []
    monkeypatch.setattr(study, "run", commands.append)
    study.train("miniworld", noise, 0, study.POLICIES["remove_random"])
    assert steps in commands[0]
    assert f"curation.select.ratio={share}" in commands[0]
