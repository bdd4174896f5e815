"""Features of photos as they come are those of the cache."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.config.compose import compose_config
from captioning.data.features.build import ensure_features
from captioning.inference import loading
from captioning.inference.building import CaptionerSettings
from captioning.inference.loading import LiveFeatures
from captioning.inference.photo_batches import photo_samples
from captioning.vision.backbones import Backbone, build_backbone


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.manual_seed(0)
    return build_backbone(name="test_efficientnet", weights="random", image_size=64)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_they_are_computed_in_the_precision_of_the_cache(precision, backbone, photo, tmp_path):
    settings = {"backbone": backbone, "precision": precision, "device": torch.device("cpu")}
    store = ensure_features([photo], folder=tmp_path, progress=False, **settings)
    cached, _ = store.read(store.positions([photo]))
    samples, _ = photo_samples([photo], None, tmp_path)
    live = LiveFeatures(kind="grid", **settings)._read(samples, samples, {})["regions"]
    assert live is not None
    assert torch.allclose(live.float(), cached.float(), rtol=1e-3, atol=1e-5)
    if precision == "bfloat16":
        full = LiveFeatures(kind="grid", **{**settings, "precision": "float32"})
        differing = full._read(samples, samples, {})["regions"]
        assert differing is not None
        assert not torch.allclose(differing.float(), cached.float(), rtol=1e-3, atol=1e-5)


def test_they_are_computed_without_tf32(backbone, photo, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.setattr(
        type(backbone),
        "normalise",
        lambda self, pixels: seen.append(torch.backends.cudnn.allow_tf32) or pixels.float(),
    )
    samples, _ = photo_samples([photo], None, tmp_path)
    live = LiveFeatures(backbone=backbone, kind="grid", device=torch.device("cpu"))
    live._read(samples, samples, {})
    assert seen == [False]
    assert torch.backends.cudnn.allow_tf32


def test_on_a_gpu_one_thread_stays_at_the_network(backbone, photo, tmp_path, monkeypatch):
    seen, normalise = [], Backbone.normalise

    def noted(self, pixels):
        seen.append(threading.get_ident())
        return normalise(self, pixels)

    monkeypatch.setattr(Backbone, "normalise", noted)
    samples, _ = photo_samples([photo], None, tmp_path)
    processor = LiveFeatures(backbone=backbone, kind="grid", device=torch.device("cpu"))
    expected = processor._read(samples, samples, {})["regions"]
    assert seen == [threading.get_ident()]
    monkeypatch.setattr(Backbone, "for_inference", lambda self, device: processor._backbone)
    gpu = LiveFeatures(backbone=backbone, kind="grid", device=torch.device("cuda"))
    gpu._device = torch.device("cpu")  # there is none here
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda _: gpu._read(samples, samples, {})["regions"], range(6)))
    assert all(torch.equal(features, expected) for features in found)
    assert len(set(seen[1:])) == 1
    assert seen[1] != threading.get_ident()


def test_a_run_tells_them_its_precision():
    chosen = ("backbone.name=test_efficientnet", "backbone.weights=random", "precision=bfloat16")
    config = compose_config("train", [f"features.{entry}" for entry in chosen])
    reader = loading._inputs(CaptionerSettings.of(config), torch.device("cpu")).readers["pictures"]
    assert isinstance(reader, LiveFeatures)
    assert reader._precision == "bfloat16"
