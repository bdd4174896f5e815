"""The study of novel objects makes what its rows begin with, and mixes no runs."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

STUDIES = Path(__file__).resolve().parents[2] / "studies"


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDIES))
    return importlib.import_module("study_novel_objects")


def test_rows_come_behind_those_that_they_begin_with(study):
    assert study.chain(["third_plc", "plb"]) == ["in_domain", "plb", "third", "third_plc"]
    assert study.chain(["all_pairs"]) == ["all_pairs"]


def test_rows_choose_their_steps(study, tmp_path):
    folder = tmp_path / "novel-miniworld"
    overrides = {name: study.overrides(study.ROWS[name], folder, 0, 0.1) for name in study.ROWS}
    assert "steps=[]" in overrides["all_pairs"]
    assert "steps=[hold_out_miniworld]" in overrides["plc"]
    assert "steps.hold_out.samples_per_photo=1" in overrides["plc"]
    assert "steps=[hold_out_miniworld, add_pairs]" in overrides["syn"]
    assert f"steps.add_pairs.folders=[{folder / 'synthetic'}]" in overrides["syn"]


def test_runs_of_a_trial_are_not_taken_for_whole_ones(study, tmp_path):
    study.refuse_others(tmp_path, ["first_images=50", "threads=1"])
    study.refuse_others(tmp_path, ["threads=2", "first_images=50"])
    with pytest.raises(SystemExit, match=r"first_images=50.*move the folder away"):
        study.refuse_others(tmp_path, ["threads=1"])


def run(folder: Path, row: str, **scores: float) -> None:
    place = folder / row / "seed0"
    place.mkdir(parents=True)
    config = {"seed": 0, "run_name": f"{folder.name}/{row}", "data": {"name": "coco"}}
    (place / "config.yaml").write_text(json.dumps(config))
    (place / "metrics.json").write_text(json.dumps({"test": {"corpus": scores}}))


def test_the_page_has_what_any_row_was_scored_by(study, monkeypatch, tmp_path):
    monkeypatch.setattr(study, "RECORDS", tmp_path / "records")
    pages = {}
    monkeypatch.setattr(study, "write_page", lambda name, lines: pages.update({name: lines}))
    folder = tmp_path / "novel-coco"
    run(folder, "all_pairs", **{"CIDEr-D": 0.6, "F1 out-of-domain": 0.4})
    run(folder, "plc", **{"F1 out-of-domain": 0.2, "SPICE in-domain": 0.1})
    study.report("coco", folder)
    assert [line for line in pages["novel_coco"] if line.startswith("|")] == [
        "| trained on | seeds | F1 out-of-domain | SPICE in-domain |",
        "| --- | --- | --- | --- |",
        "| InD + OutD (3A-i) | 1 | 0.4000 | - |",
        "| InD + PLC, Sch1 (2C) | 1 | 0.2000 | 0.1000 |",
    ]
