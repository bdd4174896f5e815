"""Files of detections, and the command that writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from captioning.config.compose import compose_config
from captioning.data.roster import build_roster
from captioning.data.steps.base import CORPUS, StepContext
from captioning.data.steps.take_detections import (
    TakeDetections,
    read_all_detections,
    read_detections,
    with_detections,
)
from captioning.training.prepare import find_objects
from captioning.training.rosters import read_roster
from captioning.training.settings import DataSettings
from captioning.types import Sample
from captioning.vision.detectors import AbstractDetector
from tests.task_calls import call

CONFIGS = Path(__file__).resolve().parents[4] / "configs"


class Corner(AbstractDetector):
    """Finds a dog in the left upper corner of every photo, and counts how many it has seen."""

    num_photos = 0

    def __init__(self, **options) -> None:
        super().__init__(identity="corner", **options)

    def raw(self, photos):
        Corner.num_photos += len(photos)
        output = (torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([0.75]), torch.tensor([0]))
        return [output for _ in photos]

    def name_of(self, number):
        return "dog"


@pytest.fixture
def config(tmp_path: Path, monkeypatch) -> DictConfig:
    overrides = [f"paths.cache={tmp_path}", f"paths.runs={tmp_path}", "first_images=5"]
    config = compose_config(
        "find_objects", overrides=["data=miniworld_tiny", "batch_size=2", *overrides]
    )
    monkeypatch.setattr(
        "captioning.training.prepare.build_part",
        lambda overrides: Corner(threshold=overrides.threshold),
    )
    Corner.num_photos = 0
    return config


def test_a_split_is_looked_at_once_and_read_in_place_of_its_boxes(config) -> None:
    out, number = call(find_objects, config)
    assert number == Corner.num_photos == 5
    assert call(find_objects, config) == (out, 5)
    assert Corner.num_photos == 5
    header, regions = read_detections(out)
    assert header["settings"]["threshold"] == 0.5
    take = {"_target_": f"{TakeDetections.__module__}.TakeDetections", "files": [str(out)]}
    OmegaConf.update(config, "steps", {"take_detections": take}, force_add=True)
    roster = read_roster(DataSettings.of(config), "train")
    for sample in roster.samples:
        (region,) = sample.regions
        assert (region.label, region.box, region.score) == ("dog", (0, 0, 10, 10), 0.75)
        assert all(not phrase.regions for phrase in sample.phrases)
    del regions[roster.samples[0].image_id]
    with pytest.raises(ValueError, match="lack 1 photos"):
        with_detections(roster, regions)


def test_a_file_cut_off_in_a_line_is_gone_on_with(config) -> None:
    out, _ = call(find_objects, config)
    complete = out.read_text()
    out.write_text(complete[:-20])
    call(find_objects, config)
    assert out.read_text() == complete
    assert Corner.num_photos == 6


def test_a_detector_that_fails_leaves_no_file_in_the_way(config, monkeypatch) -> None:
    def no_network(photos):
        raise ValueError("answers with nothing")

    monkeypatch.setattr(Corner, "raw", lambda _, photos: no_network(photos))
    with pytest.raises(ValueError, match="answers with nothing"):
        call(find_objects, config)
    assert not Path(config.out).exists()


def test_another_file_is_not_repaired(config) -> None:
    out = Path(config.out)
    out.parent.mkdir(parents=True)
    out.write_text("my list\nof things")
    with pytest.raises(ValueError, match="not JSON at line 1"):
        call(find_objects, config)
    assert out.read_text() == "my list\nof things"


def test_another_detector_does_not_add_to_a_file(config) -> None:
    out, _ = call(find_objects, config)
    config.detector.threshold = 0.1
    with pytest.raises(ValueError, match=f"{out}: its files were made with other settings"):
        call(find_objects, config)


def write_found(path: Path, *found: tuple[str, str]) -> Path:
    """A file of detections; each photo has one box of a label."""
    lines = [{"detector": "mine"}]
    for image_id, label in found:
        region = {"box": [0, 0, 9, 9], "label": label, "score": 1}
        photo = {"image_id": image_id, "file_name": "a.jpg", "size": [20, 20]}
        lines.append(photo | {"regions": [region]})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_of_a_photo_in_several_files_the_last_one_counts(tmp_path: Path) -> None:
    first = write_found(tmp_path / "first.jsonl", ("a", "dog"), ("b", "Cat"))
    second = write_found(tmp_path / "second.jsonl", ("a", "cow"))
    regions = read_all_detections([first, second])
    assert {name: region.label for name, (region,) in regions.items()} == {"a": "cow", "b": "cat"}


def test_texts_without_photos_stay_as_they_are(tmp_path: Path) -> None:
    path = write_found(tmp_path / "found.jsonl", ("a", "dog"))
    sample = Sample(row=0, sample_id="1#0", image_id="1", image_path=Path(), caption="A dog.")
    roster, step = build_roster("texts", [sample]), TakeDetections(files=[str(path)])
    assert step(roster, StepContext(split=CORPUS, seed=0, cache_folder=tmp_path)) == roster
    with pytest.raises(ValueError, match="lack 1 photos"):
        step(roster, StepContext(split="train", seed=0, cache_folder=tmp_path))


def test_a_photo_twice_in_a_file_is_named(tmp_path: Path) -> None:
    path = write_found(tmp_path / "found.jsonl", ("a", "dog"), ("a", "cow"))
    with pytest.raises(ValueError, match="found.jsonl:3: image a occurs twice, first at"):
        read_detections(path)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"box": [0, 0, 99, 9], "label": "dog", "score": 0.5}, "leaves the photo"),
        ({"box": [0, 0, 9, 9], "label": "dog", "score": 5}, "a confidence"),
        ({"box": [0, 0, 9, 9], "score": 0.5}, "'label' is missing"),
    ],
)
def test_damaged_lines_are_named(tmp_path: Path, entry, message) -> None:
    path = tmp_path / "found.jsonl"
    photo = {"image_id": "a", "file_name": "a.jpg", "size": [20, 20], "regions": [entry]}
    path.write_text('{"detector": "mine"}\n' + json.dumps(photo) + "\n")
    with pytest.raises(ValueError, match=f"found.jsonl:2.*{message}"):
        read_detections(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "found.jsonl"
    for text in ('{"image_id": "a"}\n', ""):
        path.write_text(text)
        with pytest.raises(ValueError, match="first line must name the detector"):
            read_detections(path)
