"""Every score's detection of the faults of a finished run (`curation.detect`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from captioning.config.compose import compose_config
from curation.detect import detect_run
from tests.run_calls import train
from tests.task_calls import call

LIGHT = ("loss", "visual_gain", "sibling_words", "truth")


def detect(repository: Path, run: Path):
    config = compose_config("detect", [f"run={run}", "+curation/score@scores.truth=truth"])
    config.scores = {name: config.scores[name] for name in LIGHT}
    return call(detect_run, config)


@pytest.mark.long
def test_scores_are_tried_on_a_run_that_is_over(small, repository: Path) -> None:
    config = small(
        "steps=[plant_swap20]",
        "seed=3",
        *("curation=remove", "curation/score=truth", "curation/select=above"),
        "curation/schedule=once",
        "curation/probe=visual_gain",
        "num_epochs=2",
        "curation.schedule.from_epoch=1",
        "curation.probe.until_epoch=0",
    )
    train(config)
    folder = Path(config.run_dir)
    detections = detect(repository, folder)
    assert detections == json.loads((folder / "curation" / "detection_by_score.json").read_text())
    assert [entry["epoch"] for entry in detections] == [0, 1]
    recorded = json.loads((folder / "curation" / "detection.json").read_text())
    for entry, seen in zip(detections, recorded, strict=True):
        assert set(entry["scores"]) == set(LIGHT)
        assert entry["scores"]["loss"]["auc"] == pytest.approx(seen["auc"])
        assert entry["scores"]["truth"]["auc"] == 1
        assert entry["scores"]["truth"]["by_kind"]["swap"]["num_faults"] == seen["num_faulty"]
    # measured in the first epoch only, and looked at in both
    gains = [entry["scores"]["visual_gain"]["auc"] for entry in detections]
    assert gains[0] == gains[1]


@pytest.mark.long
def test_a_run_without_faults_or_without_curation_is_refused(small, repository: Path) -> None:
    config = small("curation=track", "num_epochs=1")
    train(config)
    with pytest.raises(ValueError, match=r"has no planted faults: choose a run with steps="):
        detect(repository, Path(config.run_dir))
    plain = small("curation=none", "num_epochs=1", folder="plain")
    Path(plain.run_dir).mkdir()
    OmegaConf.save(plain, Path(plain.run_dir) / "config.yaml")
    with pytest.raises(FileNotFoundError, match="was the run trained with a curation policy"):
        detect(repository, Path(plain.run_dir))
