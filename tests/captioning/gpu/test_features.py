"""Features that a GPU computes: those of the processor, with one thread at the network."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.data.features.build import ensure_features
from captioning.vision.backbones import Backbone, build_backbone


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    names = [tmp_path / f"{number}.png" for number in range(150)]
    for name in names:
        Image.fromarray(rng.integers(0, 255, (80, 60, 3), dtype=np.uint8)).save(name)
    return names


@pytest.mark.parametrize("kind", ["grid", "regions"])
def test_features_are_those_of_the_processor(
    photos: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    boxes = None if kind == "grid" else [[(1, 2, 30, 40)]] * len(photos)
    backbone = build_backbone(name="test_resnet.r160_in1k", weights="random", image_size=64)
    called: list[tuple[int, int]] = []
    real = Backbone.grid

    def grid(self: Backbone, images: torch.Tensor) -> torch.Tensor:
        if images.is_cuda:
            called.append((threading.get_ident(), len(images)))
        return real(self, images)

    monkeypatch.setattr(Backbone, "grid", grid)
    found = {
        device: ensure_features(
            photos,
            backbone=backbone,
            folder=tmp_path / device,
            kind=kind,
            boxes=boxes,
            num_workers=4,
            device=device,
            progress=False,
        )
        for device in ("cuda", "cpu")
    }
    assert called == [(threading.get_ident(), size) for size in (64, 64, 22)]
    ours, theirs = (store.read(store.positions(photos))[0] for store in found.values())
    assert ours.shape == theirs.shape
    torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-3)
