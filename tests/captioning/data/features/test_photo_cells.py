"""Photos in few dimensions: cells along principal components, and means in full."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.data.features.build import ensure_features
from captioning.data.features.photo_cells import PhotoCells
from captioning.vision.backbones import Backbone, build_backbone


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.manual_seed(0)
    return build_backbone(name="test_efficientnet", weights="random", image_size=64)


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    draw = np.random.default_rng(0)
    paths = [tmp_path / f"{number}.png" for number in range(5)]
    for path in paths:
        Image.fromarray(draw.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(path)
    return paths


def test_means_are_of_all_values_and_cells_of_the_first_components(
    backbone: Backbone, photos: list[Path], tmp_path: Path
) -> None:
    settings = {"folder": tmp_path / "cache", "num_workers": 0, "progress": False}
    read = PhotoCells(backbone=backbone, features=settings, num_components=3)
    store = ensure_features(photos, backbone=backbone, **settings)
    plain = store.read(store.positions(photos))[0].float()
    features = read([*photos[2:], photos[2]])
    assert features.cells.shape == (4, backbone.num_cells, 3)
    assert features.means.shape == (4, backbone.dim)
    assert torch.allclose(features.means, plain[[2, 3, 4, 2]].mean(1), atol=1e-5)
    spread = features.cells[:3].float().flatten(0, 1).std(0)
    assert float(spread[0]) == pytest.approx(3, rel=0.02)
    assert spread[0] > spread[1] > spread[2]
    again = read(photos)  # those that are known as they were, along the same components
    assert torch.equal(again.cells[2:], features.cells[:3])
    assert torch.equal(again.means[2:], features.means[:3])
    assert torch.allclose(again.means, plain.mean(1), atol=1e-5)


def test_means_of_further_networks_stand_beside_those_of_the_first(
    backbone: Backbone, photos: list[Path], tmp_path: Path
) -> None:
    torch.manual_seed(1)
    other = build_backbone(name="test_efficientnet", weights="random", image_size=96)
    settings = {"folder": tmp_path / "cache", "num_workers": 0, "progress": False}
    both = PhotoCells(backbone=backbone, more=[other], features=settings, num_components=3)(photos)
    first, second = (
        PhotoCells(backbone=network, features=settings, num_components=3)(photos)
        for network in (backbone, other)
    )
    assert torch.equal(both.cells, first.cells)
    assert torch.equal(both.means, torch.cat([first.means, second.means], 1))
    assert not torch.equal(first.means, second.means)
