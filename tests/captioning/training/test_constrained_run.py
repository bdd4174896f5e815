"""A finished run, asked for captions that hold given words, as ``evaluate.py`` does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from captioning.config.compose import compose_config
from captioning.evaluation.predict import load_run, predict_run
from captioning.training.rosters import read_roster
from captioning.training.settings import DataSettings
from tests.run_calls import evaluate, train


@pytest.mark.long
def test_a_run_says_the_words_asked_for(
    small, repository: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(small("num_epochs=1", "search.max_length=20"))
    run = tmp_path / "run"
    (free, *_), roster, _ = predict_run(run)
    image_id = free[0].image_id
    words = sorted({w for s in roster.samples for w in s.caption.lower().strip(".").split()})
    word = next(w for w in words if len(w) > 3 and w not in free[0].caption.split())
    path = tmp_path / "words.json"
    path.write_text(json.dumps({image_id: [word, "xylophone"]}))

    def captions(*overrides: str) -> dict[str, dict]:
        options = [f"run={run}", f"out={tmp_path / 'out'}", "metrics=fast", *overrides]
        evaluate(compose_config("evaluate", options))
        entries = json.loads((tmp_path / "out" / "predictions.json").read_text())
        return {str(entry["image_id"]): entry for entry in entries}

    constrained = ("search=constrained", "constraints=words", f"constraints.path={path}")
    predicted = captions(*constrained)
    assert word in predicted[image_id]["caption"].split()
    assert {"constraints_met"} == {key for e in predicted.values() for key in e} - {
        "image_id",
        "caption",
    }
    evaluated = json.loads((tmp_path / "out" / "metrics.json").read_text())["evaluated"]
    assert evaluated["constraints"]["path"] == str(path)
    assert "constraints_met" not in captions()[image_id]
    forbidden = captions("search=beam", f"search.forbidden_words=[{word}]", "search.num_captions=3")
    assert all(word not in entry["caption"].split() for entry in forbidden.values())
    groups = json.loads((tmp_path / "out" / "candidates.json").read_text())
    assert {len(group["captions"]) for group in groups} == {3}
    with pytest.raises(ValueError, match="needs one machine"):
        captions("search=constrained")
    with pytest.raises(ValueError, match=r"constraints=held_out needs classes.*constraints=words"):
        captions("search=constrained", "constraints=held_out")
    caplog.clear()
    with caplog.at_level("INFO"):
        captions(*constrained)
    assert f"of 1 images; {len(predicted) - 1} have none" in caplog.text


def laptops(path: Path, image_ids: Iterable[str]) -> Path:
    """Detections of a laptop in each photo."""
    box = {"box": [0, 0, 9, 9], "label": "laptop", "score": 0.9}
    photos = [
        {"image_id": i, "file_name": i, "size": [96, 96], "regions": [box]} for i in image_ids
    ]
    path.write_text("\n".join(map(json.dumps, [{"detector": "mine"}, *photos])))
    return path


@pytest.mark.long
def test_boxes_of_a_detector_say_the_words_of_another_split(
    small, repository: Path, tmp_path: Path
) -> None:
    trained = small("num_epochs=1", "search.max_length=20")
    train(trained)
    near = read_roster(DataSettings.of(trained), "test_near").rows_by_image
    path = laptops(tmp_path / "near.jsonl", near)

    def captions(*overrides: str) -> dict[str, dict]:
        options = [f"run={tmp_path / 'run'}", f"out={tmp_path / 'out'}", "metrics=fast"]
        options += ["split=test_near", "search=constrained", "constraints=detections", *overrides]
        evaluate(compose_config("evaluate", options))
        entries = json.loads((tmp_path / "out" / "predictions.json").read_text())
        return {str(entry["image_id"]): entry for entry in entries}

    predicted = captions(f"detections=[{path}]")
    assert predicted.keys() == near.keys()
    assert all(
        "laptop" in entry["caption"].split()
        for entry in predicted.values()
        if entry["constraints_met"]
    )
    assert any(entry["constraints_met"] for entry in predicted.values())
    evaluated = json.loads((tmp_path / "out" / "metrics.json").read_text())["evaluated"]
    assert evaluated["detections"] == [str(path)]
    with pytest.raises(ValueError, match=r"files of detections lack .* photos"):
        captions(f"detections=[{path}]", "split=test")


@pytest.mark.long
def test_boxes_of_training_give_way(small, tmp_path: Path) -> None:
    trained = small("num_epochs=1", "data.train.num_scenes=24")
    rosters = [
        read_roster(DataSettings.of(trained), split).rows_by_image
        for split in ("train", "val", "test")
    ]
    seen = {image for roster in rosters for image in roster}
    path = laptops(tmp_path / "trained.jsonl", seen)
    take = ("steps=[take_detections]", f"steps.take_detections.files=[{path}]")
    train(small("num_epochs=1", "data.train.num_scenes=24", *take))

    def labels(detections: list[str] | None) -> set[str]:
        samples = load_run(tmp_path / "run", detections=detections).roster.samples
        return {region.label for sample in samples for region in sample.regions}

    assert labels(None) == {"laptop"}
    assert len(labels([])) > 1
    assert load_run(tmp_path / "run", split="test_near", detections=[]).roster.samples
    with pytest.raises(ValueError, match=r"files of detections lack .* photos"):
        load_run(tmp_path / "run", split="test_near")
