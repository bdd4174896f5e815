"""Photos that the joint space was not trained on."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from captioning.data.line_files import read_image_list
from tools.assets.unseen_photos import FILE_NAME, unseen_photos, write_unseen_photos

FIRST = ("COCO_train2014_000000000009.jpg", "COCO_train2014_000000000025.jpg")


def test_the_last_thousand_of_the_sample_were_not_trained_on(
    tmp_path: Path, monkeypatch, shared_data
) -> None:
    monkeypatch.setenv("CAPTIONING_DATA", str(shared_data))
    monkeypatch.setenv("CAPTIONING_CACHE", str(tmp_path))
    number, out = write_unseen_photos()
    assert (number, out) == (1000, tmp_path / FILE_NAME)
    ids = read_image_list(out)
    assert len(set(ids)) == 1000
    assert max(map(int, ids)) < 35_200  # of the 5,000 lowest


def test_other_photos_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "coco" / "train2014_sample"
    with pytest.raises(FileNotFoundError, match="train2014_sample"):
        unseen_photos(folder)
    folder.mkdir(parents=True)
    for name in FIRST:
        Image.new("RGB", (8, 8)).save(folder / name)
    with pytest.raises(ValueError, match="5,000 photos .* lowest ids .* got 2 photos"):
        unseen_photos(folder)
