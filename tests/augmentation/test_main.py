"""``captioning augment`` in this process, on a few tiny photos with boxes of a detector."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from augmentation.run import augment, limits
from captioning.config.compose import compose_config
from captioning.config.tasks import arguments_of
from captioning.data.steps.take_detections import detection_line
from captioning.types import Region
from tests.augmentation.regions.scenes import scenes
from tests.task_calls import call

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
HELD_OUT = "method.classes={dog: {candidates: [cat]}}"
Change = Callable[[Region], Region | None]


def config_of(folder: Path, *overrides: str) -> DictConfig:
    options = [f"paths.cache={folder / 'cache'}", f"out={folder / 'out'}", "num_processes=0"]
    return compose_config("augmentation", overrides=[*options, *overrides])


@pytest.fixture
def detected(tmp_path: Path) -> Callable[[str, Change], DictConfig]:
    """The config for photos of cats and dogs with their boxes changed, or lost, by a detector."""
    (tmp_path / "images").mkdir()
    roster = scenes(tmp_path / "images")
    lines = [
        json.dumps({"image": s.image_path.name, "image_id": s.image_id, "caption": s.caption})
        for s in roster.samples
    ]
    (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n")

    def config(name: str, change: Change) -> DictConfig:
        detections = ['{"detector": "test"}']
        for rows in roster.rows_by_image.values():
            first_sample = roster.samples[rows[0]]
            regions = [r for r in map(change, first_sample.regions) if r is not None]
            detections.append(
                detection_line(
                    first_sample.image_id, first_sample.image_path.name, (64, 64), regions
                )
            )
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(detections) + "\n")
        options = [f"data.root={tmp_path}", "steps=[take_detections]", HELD_OUT]
        options.append(f"steps.take_detections.files=[{path}]")
        return config_of(tmp_path, "data=jsonl", "method.limits.smallest_area=50", *options)

    return config


def test_a_folder_is_refused_to_pairs_of_other_detections(detected) -> None:
    first = detected("first", lambda region: region)
    card = call(augment, first)
    assert card["counts"]["pictures"] > 0
    moved = detected("moved", lambda r: replace(r, box=(r.box[0] - 4, *r.box[1:])))
    with pytest.raises(ValueError, match="other settings or data"):
        call(augment, moved)
    assert call(augment, first)["counts"] == card["counts"]


def test_pairs_may_be_continued_with_another_cache_and_other_numbers(detected, tmp_path) -> None:
    config = detected("first", lambda region: region)
    counts = call(augment, config)["counts"]
    config.paths.cache = str(tmp_path / "elsewhere")
    config.method.parser.num_processes = 1
    config.format.num_cached_photos = 3
    assert call(augment, config)["counts"] == counts
    config.format.quality = 80
    with pytest.raises(ValueError, match=r"settings.json differs in format\)"):
        call(augment, config)


def test_a_detector_that_finds_nothing_is_told_from_the_counts(detected, tmp_path) -> None:
    with pytest.raises(ValueError, match="no image was rendered") as error:
        call(augment, detected("blind", lambda region: None))
    assert "'photos with boxes': 0" in str(error.value)
    assert "\n" not in str(error.value)
    no_dogs = detected("no_dogs", lambda region: region if region.label != "dog" else None)
    no_dogs.out = str(tmp_path / "no_dogs")
    with pytest.raises(ValueError, match=r"left out, by reason: {'no box of the novel obj.*': 6}"):
        call(augment, no_dogs)


CAPTIONS = '[{"image_id": "1", "caption": "a dog"}]'


@pytest.mark.parametrize(
    ("setting", "before", "after"),
    [
        ("words_file", "dog\ndogs\n", "dog\n"),
        ("predictions", CAPTIONS, CAPTIONS + " "),
    ],
)
def test_a_folder_is_refused_where_a_file_of_the_settings_has_changed(
    detected, tmp_path, setting: str, before: str, after: str
) -> None:
    config, path = detected("all", lambda region: region), tmp_path / "given.txt"
    config.method[setting] = str(path)
    path.write_text(before)
    card = call(augment, config)
    assert card["files"].keys() == {setting}
    assert call(augment, config)["files"] == card["files"]
    path.write_text(after)
    with pytest.raises(ValueError, match=r"settings.json differs in files\)"):
        call(augment, config)


@pytest.mark.parametrize(
    ("options", "number"), [((), 1000), (("first_images=50",), 50), (("smoke.first_images=9",), 9)]
)
def test_a_smoke_run_reads_as_few_photos_as_asked_for(options, number, monkeypatch) -> None:
    config = compose_config("augmentation", ["debug=smoke", *options], return_hydra_config=True)
    monkeypatch.setattr(HydraConfig.instance(), "cfg", None)
    HydraConfig.instance().set_config(config)
    given = arguments_of(augment, config)
    assert limits(given["first_images"], given["max_pairs"], given["smoke"]) == (number, 24)
