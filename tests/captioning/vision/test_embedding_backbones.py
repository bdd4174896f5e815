"""Embeddings of photos as features: those of the encoders themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.data.features.build import ensure_features
from captioning.vision.backbones import build_backbone
from captioning.vision.clip import ClipEncoder, build_clip
from captioning.vision.embedding_backbones import ClipBackbone, JointSpaceBackbone
from captioning.vision.joint_space import JointSpace, JointSpaceEncoder
from tests.clip_folder import clip_folder


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    """Photos of three shapes."""
    rng, paths = np.random.default_rng(0), []
    for number, size in enumerate(((40, 60), (32, 32), (90, 50))):
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(paths[-1])
    return paths


def joint_space() -> JointSpaceEncoder:
    torch.manual_seed(0)
    backbone = build_backbone(name="test_resnet.r160_in1k", weights="random", image_size=64)
    heads = JointSpace(image_size=backbone.dim, width=16, size=6)
    return JointSpaceEncoder(heads=heads, backbone=backbone, sentences=None)


@pytest.fixture
def clip(tmp_path: Path) -> ClipEncoder:
    folder = clip_folder(tmp_path / "tiny-clip")
    return build_clip(name=str(folder), weights=None, device="cpu")


def stored(backbone: object, photos: list[Path], folder: Path) -> torch.Tensor:
    store = ensure_features(
        photos, backbone=backbone, folder=folder, num_workers=1, device="cpu", progress=False
    )
    regions, mask = store.read(store.positions(photos))
    assert mask is None
    assert regions.shape == (len(photos), 1, backbone.dim)
    return regions[:, 0].float()


def test_of_the_joint_space(photos: list[Path], tmp_path: Path) -> None:
    encoder = joint_space()
    features = stored(JointSpaceBackbone(encoder=encoder), photos, tmp_path / "cache")
    expected = encoder.embed_photos([Image.open(path) for path in photos])
    torch.testing.assert_close(features, expected, atol=2e-3, rtol=0)
    assert JointSpaceBackbone(encoder=encoder).identity.startswith("joint_space-")


def test_of_clip(clip: ClipEncoder, photos: list[Path], tmp_path: Path) -> None:
    features = stored(ClipBackbone(encoder=clip), photos, tmp_path / "cache")
    expected = clip.embed_photos([Image.open(path) for path in photos])
    torch.testing.assert_close(features, expected, atol=2e-3, rtol=0)


def test_other_weights_are_other_features(clip: ClipEncoder) -> None:
    identity = ClipBackbone(encoder=clip).identity
    with torch.no_grad():
        clip.model.visual.proj.add_(0.1)
    assert ClipBackbone(encoder=clip).identity != identity


def test_photos_that_are_prepared_in_an_unknown_way_are_refused(clip: ClipEncoder) -> None:
    clip.preprocess = lambda image: torch.zeros(3, 32, 32)
    with pytest.raises(ValueError, match="choose another CLIP"):
        ClipBackbone(encoder=clip)
