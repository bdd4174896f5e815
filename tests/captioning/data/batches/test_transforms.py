"""Photos to network input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.data.batches.distortion import KINDS, SHEAR, SHIFT
from captioning.data.batches.transforms import EvalTransform, TrainTransform
from captioning.vision.backbones import Backbone, build_backbone
from captioning.vision.blip import build_blip_vision


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return build_backbone(name="test_efficientnet", weights="random", image_size=32)


@pytest.fixture(scope="module")
def photo() -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def test_eval_sees_what_cached_features_see(backbone: Backbone, photo: Image.Image) -> None:
    resized = np.array(photo.resize((32, 32), Image.Resampling.BICUBIC))
    expected = torch.from_numpy(resized).permute(2, 0, 1)
    pixels = EvalTransform(backbone=backbone)(photo)
    assert pixels.dtype == torch.uint8
    assert torch.equal(pixels, expected)


@pytest.mark.parametrize("kind", ["timm", "blip"])
def test_backbones_normalise_bytes_on_the_device(kind: str, photo: Image.Image) -> None:
    backbone: Any = build_backbone(name="test_efficientnet", weights="random", image_size=32)
    if kind == "blip":
        sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        backbone = build_blip_vision(**sizes, intermediate_size=8, image_size=32, patch_size=16)
    pixels = EvalTransform(backbone=backbone)(photo)[None]
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (backbone.mean, backbone.std))
    normal = (pixels.float() - mean * 255) / (std * 255)
    assert torch.equal(backbone.normalise(pixels), normal)
    with torch.no_grad():
        assert torch.equal(backbone.eval().grid(pixels), backbone.grid(normal))


def test_seeded_draws_depend_on_the_key_alone(backbone: Backbone, photo: Image.Image) -> None:
    transform = TrainTransform(backbone=backbone, flip=True, distortions=2)
    first = transform.seeded((0, 1, 2, 3))(photo)
    transform.seeded((0, 1, 2, 4))(photo)
    torch.manual_seed(5)
    assert torch.equal(transform.seeded((0, 1, 2, 3))(photo), first)
    others = [transform.seeded((0, 1, 2, row))(photo) for row in range(4, 12)]
    assert not any(torch.equal(first, other) for other in others)


def test_crops_follow_the_generator_and_1_is_the_whole(
    backbone: Backbone, photo: Image.Image
) -> None:
    def draw(seed: int) -> torch.Tensor:
        generator = np.random.default_rng(seed)
        return TrainTransform(backbone=backbone, generator=generator)(photo)

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    uncropped = EvalTransform(backbone=backbone)(photo)
    assert torch.equal(TrainTransform(backbone=backbone, smallest_crop=1)(photo), uncropped)


def test_flips_mirror_about_half_and_are_off_by_default(
    backbone: Backbone, photo: Image.Image
) -> None:
    unchanged = EvalTransform(backbone=backbone)(photo)
    generator = np.random.default_rng(0)
    options = {"backbone": backbone, "smallest_crop": 1, "generator": generator}
    flipped = TrainTransform(flip=True, **options)
    mirrored = sum(torch.equal(flipped(photo), unchanged.flip(2)) for _ in range(40))
    assert 10 <= mirrored <= 30
    plain = TrainTransform(**options)
    assert all(torch.equal(plain(photo), unchanged) for _ in range(10))


def test_torch_seed_repeats_the_draws(backbone: Backbone, photo: Image.Image) -> None:
    transform = TrainTransform(backbone=backbone)
    torch.manual_seed(3)
    first = transform(photo)
    torch.manual_seed(3)
    assert torch.equal(transform(photo), first)


@pytest.mark.parametrize("share", [0, -0.1, 1.1])
def test_smallest_crop_outside_its_range(backbone: Backbone, share: float) -> None:
    with pytest.raises(ValueError, match="smallest_crop"):
        TrainTransform(backbone=backbone, smallest_crop=share)


def test_each_distortion_does_what_it_says() -> None:
    side = 64
    image = Image.new("RGB", (side, side), (60, 60, 60))
    image.paste((120, 120, 120), (28, 28, 36, 36))
    bright = np.array(image)[:, :, 0] == 120

    for kind in range(3):
        assert KINDS[kind](image, 1) is image
    for kind in (3, 4):
        assert set(np.unique(np.array(KINDS[kind](image, 1)))) == {0, 255}
    middle = np.argwhere(bright).mean(0)
    bright_near = np.zeros((side, side), bool)
    bright_near[16:48, 16:48] = True  # without the grey that is moved in
    pixels = np.array(KINDS[7](image, 1))
    assert (pixels[:, -SHIFT:] == 128).all()  # what is shifted in is grey
    assert np.array_equal(pixels[:, : side - SHIFT], np.array(image)[:, SHIFT:])
    pixels = np.array(KINDS[8](image, -1))
    assert np.array_equal(pixels[SHIFT:], np.array(image)[: side - SHIFT])
    for kind, moved in ((5, (0, -1)), (6, (-1, 0))):
        bright_places = np.argwhere((np.array(KINDS[kind](image, 1))[:, :, 0] > 90) & bright_near)
        assert np.abs(bright_places.mean(0) - middle - np.array(moved) * SHEAR * 31.5).max() < 1
    turned = np.array(KINDS[9](image, 1))
    assert (turned[0, 0] == 128).all()
    assert np.abs(np.argwhere((turned[:, :, 0] > 115) & bright_near).mean(0) - middle).max() < 1


def test_distortions_are_drawn(backbone: Backbone, photo: Image.Image) -> None:
    generator = np.random.default_rng(0)
    options = {"backbone": backbone, "smallest_crop": 1, "generator": generator}
    undistorted = EvalTransform(backbone=backbone)(photo)
    distorted = TrainTransform(distortions=2, **options)
    num_unchanged = sum(torch.equal(distorted(photo), undistorted) for _ in range(100))
    assert 30 <= num_unchanged <= 55  # (1 - 0.5 * 7 / 10) squared of them
    with pytest.raises(ValueError, match="at least 0: got -1"):
        TrainTransform(distortions=-1, **options)
