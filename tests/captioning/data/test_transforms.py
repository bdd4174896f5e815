"""Photos to network input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.data.transforms import EvalTransform, TrainTransform
from captioning.vision.backbones import Backbone, build_backbone


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return build_backbone(name="test_efficientnet", weights="random", image_size=32)


@pytest.fixture(scope="module")
def photo() -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def test_eval_sees_what_cached_features_see(backbone: Backbone, photo: Image.Image) -> None:
    resized = np.array(photo.resize((32, 32), Image.Resampling.BICUBIC))
    expected = backbone.normalise(torch.from_numpy(resized).permute(2, 0, 1)[None])[0]
    assert torch.equal(EvalTransform(backbone=backbone)(photo), expected)


def test_crops_follow_the_generator_and_1_is_the_whole(
    backbone: Backbone, photo: Image.Image
) -> None:
    def draw(seed: int) -> torch.Tensor:
        generator = np.random.default_rng(seed)
        return TrainTransform(backbone=backbone, generator=generator)(photo)

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    whole = EvalTransform(backbone=backbone)(photo)
    assert torch.equal(TrainTransform(backbone=backbone, smallest_crop=1)(photo), whole)


def test_flips_mirror_about_half_and_are_off_by_default(
    backbone: Backbone, photo: Image.Image
) -> None:
    whole = EvalTransform(backbone=backbone)(photo)
    generator = np.random.default_rng(0)
    options = {"backbone": backbone, "smallest_crop": 1, "generator": generator}
    flipped = TrainTransform(flip=True, **options)
    mirrored = sum(torch.equal(flipped(photo), whole.flip(2)) for _ in range(40))
    assert 10 <= mirrored <= 30
    plain = TrainTransform(**options)
    assert all(torch.equal(plain(photo), whole) for _ in range(10))


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
