"""FID and paired distances of folders of images."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from omegaconf import DictConfig
from PIL import Image

from captioning.config.compose import compose_config
from captioning.evaluation.image_distance import image_distance, read_images
from tests.photo_files import turned
from tests.task_calls import call


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eight small pictures in ``real``."""
    rng = np.random.default_rng(0)
    (tmp_path / "real" / "deep").mkdir(parents=True)
    for number in range(8):
        pixels = rng.integers(0, 256, (40, 60, 3), dtype=np.uint8)
        name = f"deep/{number}.png" if number % 2 else f"{number}.jpg"
        Image.fromarray(pixels).save(tmp_path / "real" / name)
    return tmp_path


def configured(repository: Path, folder: Path, *overrides: str) -> DictConfig:
    defaults = [
        "features.backbone.name=test_resnet.r160_in1k",
        "features.backbone.weights=random",
        "features.backbone.image_size=64",
        "batch_size=3",
        f"real={folder / 'real'}",
        f"other={folder / 'other'}",
    ]
    return compose_config("image_distance", [*defaults, *overrides])


def test_a_folder_lies_at_0_from_itself_and_further_from_a_darker_one(
    repository: Path, folder: Path
) -> None:
    shutil.copytree(folder / "real", folder / "other")
    out = folder / "out.json"
    same = call(image_distance, configured(repository, folder, f"out={out}"))
    assert same["name"].startswith("FID(test_resnet")
    assert same["value"] == pytest.approx(0, abs=1e-6)
    assert same["num_images"] == (8, 8)
    written = json.loads(out.read_text())
    assert written["name"] == same["name"]
    assert written["real"] == str(folder / "real")
    for file in (folder / "other").rglob("*.*"):
        Image.open(file).point(lambda value: value // 3).save(file)
    assert call(image_distance, configured(repository, folder))["value"] > 0.001 + same["value"]
    paired = call(image_distance, configured(repository, folder, "paired=true"))
    assert paired["name"].startswith("paired L2(")
    assert paired["value"] > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda other: None, "no images"),
        (lambda other: Image.new("RGB", (9, 9)).save(other / "more.png"), "only in .*, such as 0"),
        (lambda other: (other / "._a.jpg").write_bytes(b"no image"), "no images"),
        (lambda other: (other / "a.jpg").write_bytes(b"no image"), "photo is not an image"),
        (lambda other: (other / "a.heic").write_bytes(b"no image"), "photo is not an image"),
    ],
)
def test_bad_folders_are_named(repository: Path, folder: Path, change, message: str) -> None:
    (folder / "other").mkdir()
    change(folder / "other")
    paired = "paired=true" if "only in" in message else "paired=false"
    with pytest.raises(ValueError, match=message):
        call(image_distance, configured(repository, folder, paired))


def test_images_are_turned_as_their_exif_says(tmp_path: Path) -> None:
    (image,) = next(read_images([turned(tmp_path / "a.jpg")], size=8, batch_size=1))
    assert image[:, 0].float().mean() > 250
    assert image[:, -1].float().mean() < 5
