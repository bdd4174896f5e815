"""The page of all captioners, from records."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

STUDIES = Path(__file__).resolve().parents[3] / "tools" / "studies"
NAME = "flickr8k_entities/cic_bart_small-none-none"


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDIES))
    return importlib.import_module("models_report")


def test_control_asked_for_by_other_captions_says_so(report, tmp_path):
    place = tmp_path / NAME / "seed0"
    for folder in ("flickr8k_entities-test", "flickr8k_entities-test-ssa", "coco_entities-test"):
        path = place / "evaluation" / folder / "control.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"scores": {"corpus": {"IoU": 0.5}}, "swapped": None}))
    (place / "config.yaml").write_text(json.dumps({"run_name": NAME, "seed": 0}))
    (place / "metrics.json").write_text(json.dumps({"test": {"corpus": {"CIDEr-D": 0.5}}}))
    lines = report.page(report.by_row(report.read_table([tmp_path], ("run_name",))))
    names = [line.split(" | ")[0] for line in lines if line.endswith("| - | - | - | - |")]
    called = "| CIC-BART, ordered control"
    assert sorted(names) == [
        called,
        f"{called}, asked for captions of coco_entities-test",
        f"{called}, asked for captions of ssa",
    ]
