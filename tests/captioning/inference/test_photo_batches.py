"""Photos as samples in batches, and repeats of them."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image

from captioning.decoding.settings import SearchSettings
from captioning.inference.captioner import Captioner
from captioning.inference.loading import LiveFeatures, LoadedCaptioner
from captioning.inference.photo_batches import photo_samples
from captioning.vision.backbones import build_backbone
from tests import tiny

LEFT, RIGHT = (0.0, 0.0, 30.0, 40.0), (30.0, 0.0, 60.0, 40.0)


def test_a_photo_may_come_again_with_other_boxes(tmp_path, monkeypatch):
    photo = tmp_path / "photo.png"
    pixels = np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(photo)
    torch.manual_seed(0)
    backbone = build_backbone(name="test_efficientnet", weights="random", image_size=64)
    monkeypatch.setattr(tiny, "FEATURE_SIZE", backbone.dim)
    device = torch.device("cpu")
    live = LiveFeatures(backbone=backbone, kind="regions", device=device)
    captioner = Captioner(
        LoadedCaptioner(
            model=tiny.build("updown"),
            config=OmegaConf.create({"features": {"kind": "regions"}}),
            readers={"pictures": live},
            device=device,
        )
    )
    boxes = ([LEFT], [RIGHT], [LEFT], [])
    results = captioner.caption([photo] * 4, boxes=boxes, batch_size=3)
    assert [[*result.boxes] for result in results] == [*boxes]
    assert {result.photo for result in results} == {str(photo)}
    alone = [captioner.caption([photo], boxes=[own])[0] for own in boxes]
    assert [r.caption for r in results] == [r.caption for r in alone]
    assert [r.score for r in results] == pytest.approx([r.score for r in alone], rel=1e-4)
    assert results[2] == results[0]
    assert abs(results[1].score - results[0].score) > 1e-3


def test_every_option_of_a_search_is_named():
    own = inspect.signature(Captioner.stream).parameters.keys() | {"diverse", "min_words"}
    names = {"max_words", *own, *(field.name for field in fields(SearchSettings))} - {"search"}
    assert inspect.signature(Captioner.caption).parameters.keys() == names


def test_ids_of_photos_with_other_boxes_are_no_other_photos():
    paths = ["a.jpg", "a.jpg#1", "a.jpg", "a.jpg"]
    samples, ids = photo_samples(paths, [[LEFT], [LEFT], [RIGHT], [LEFT]], Path())
    assert [str(sample.image_path) for sample in samples] == ["a.jpg", "a.jpg#1", "a.jpg"]
    assert ids == ["a.jpg", "a.jpg#1", "a.jpg#2", "a.jpg"]
