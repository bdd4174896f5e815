"""The page of CutSwap's tables refuses runs that are not comparable."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

STUDIES = Path(__file__).resolve().parents[2] / "studies"


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDIES))
    return importlib.import_module("cutswap_report")


def run(folder: Path, added: float, *, seed: int = 0, step: int = 60, score: float = 0.5) -> Path:
    place = folder / f"of0.1-added{added}" / f"seed{seed}"
    place.mkdir(parents=True)
    pairs = {"share": added, "share_of": "photos"}
    settings = {"steps": {"share_of_photos": {"share": 0.1}, "add_pairs": pairs}, "seed": seed}
    (place / "config.yaml").write_text(json.dumps(settings))
    scores = {"test": {"corpus": {"CIDEr-D": score}}, "val_history": [{"step": 30}, {"step": step}]}
    (place / "metrics.json").write_text(json.dumps(scores))
    return place


def test_rows_have_their_updates_and_evaluations(report, tmp_path):
    run(tmp_path, 0.0), run(tmp_path, 0.2, score=0.6)
    place = run(tmp_path, 0.2, seed=1, score=0.7)
    (place / "oracle20.json").write_text(json.dumps({"oracle CIDEr-D": 1.5}))
    lines = report.page("x", "y", report.read_table([tmp_path]))
    assert "| 10% | +0% of photos | 1 | 60 | - | - | - | - | 0.5000 | - | - | - |" in lines
    assert (
        "| 10% | +20% of photos | 2 | 60 | - | - | - | - | 0.6500 ± 0.0707 | - | - | - |" in lines
    )
    assert "| 10% | +20% of photos | 1 | 60 | - | - | - | - | 1.5000 | - | - | - |" in lines
    assert "## oracle100" not in lines


def test_different_numbers_of_updates_are_refused(report, tmp_path):
    run(tmp_path, 0.0), run(tmp_path, 0.2, step=72)
    with pytest.raises(ValueError, match=r"made \[60, 72\] updates"):
        report.read_table([tmp_path])


def test_runs_without_validation_have_their_updates_too(report, tmp_path):
    unknown = run(tmp_path, 0.0)
    for place, num_updates in ((unknown, None), (run(tmp_path, 0.2), 72)):
        scores = json.loads((place / "metrics.json").read_text())
        (place / "metrics.json").write_text(json.dumps({"test": scores["test"]}))
        timing = {"epochs": [{"seconds": 1.0} | ({"updates": num_updates} if num_updates else {})]}
        (place / "timing.json").write_text(json.dumps(timing))
    with pytest.raises(ValueError, match=r"made \[72, None\] updates"):
        report.read_table([tmp_path])
    (unknown / "timing.json").write_text(json.dumps({"epochs": [{"updates": 72}]}))
    lines = report.page("x", "y", report.read_table([tmp_path]))
    assert "| 10% | +0% of photos | 1 | 72 | - | - | - | - | 0.5000 | - | - | - |" in lines


def test_shares_of_captions_are_rows_of_their_own_and_drawn(report, tmp_path):
    run(tmp_path, 0.0), run(tmp_path, 0.2)
    place = run(tmp_path, 0.3)
    config = json.loads((place / "config.yaml").read_text())
    config["steps"]["add_pairs"]["share_of"] = "captions"
    (place / "config.yaml").write_text(json.dumps(config))
    table = report.read_table([tmp_path])
    rows = [(0.1, 0.0, "photos"), (0.1, 0.2, "photos"), (0.1, 0.3, "captions")]
    assert sorted(table) == rows
    report.draw(table, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
