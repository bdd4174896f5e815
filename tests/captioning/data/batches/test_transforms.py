"""Photos to network input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from captioning.data.batches.transforms import (
    GREY,
    KINDS,
    SHEAR,
    SHIFT,
    EvalTransform,
    TrainTransform,
    as_pixels,
)
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
    uncropped = EvalTransform(backbone=backbone)(photo).int()
    gap = TrainTransform(backbone=backbone, smallest_crop=1)(photo).int() - uncropped
    assert gap.abs().max() <= 2  # rounded otherwise than by Pillow


def test_crops_may_have_shapes_of_their_own(backbone: Backbone) -> None:
    transform = TrainTransform(backbone=backbone, smallest_crop=0.5, widest_crop=4 / 3)
    rng = np.random.default_rng(0)
    drawn = np.array([transform._sides(640, 480, rng) for _ in range(3000)])
    ratios, shares = drawn[:, 0] / drawn[:, 1], drawn.prod(1) / (640 * 480)
    assert 0.75 <= ratios.min() < 0.78
    assert 1.3 < ratios.max() <= 4 / 3 + 1e-9
    assert 0.5 <= shares.min() < 0.52
    assert shares.max() > 0.9
    half_never_fits = transform._sides(1000, 100, rng)
    assert half_never_fits == pytest.approx((400 / 3, 100))
    assert transform.smallest_side == np.ceil(backbone.image_size / np.sqrt(0.375))
    with pytest.raises(ValueError, match="widest_crop must be at least 1, or null: got 0.9"):
        TrainTransform(backbone=backbone, widest_crop=0.9)


def test_flips_mirror_about_half_and_are_off_by_default(
    backbone: Backbone, photo: Image.Image
) -> None:
    unchanged = TrainTransform(backbone=backbone, smallest_crop=1)(photo)
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


def as_pillow(kind: int, sign: int, image: Image.Image) -> Image.Image:
    """What Pillow makes of the same distortion."""
    moves = {
        5: (1, sign * SHEAR, 0, 0, 1, 0),
        6: (1, 0, 0, sign * SHEAR, 1, 0),
        7: (1, 0, sign * SHIFT, 0, 1, 0),
        8: (1, 0, 0, 0, 1, sign * SHIFT),
    }
    if kind in moves:
        method, resample = Image.Transform.AFFINE, Image.Resampling.BILINEAR
        grey = (GREY,) * 3
        return image.transform(image.size, method, moves[kind], resample=resample, fillcolor=grey)
    made = {3: ImageOps.autocontrast, 4: ImageOps.equalize}
    return made[kind](image) if kind in made else image


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("kind", range(9))
def test_each_distortion_is_that_of_pillow(kind: int, sign: int) -> None:
    rows, columns = np.mgrid[0:48, 0:40]
    smooth = np.stack([rows * 3 + 20, columns * 4 + 30, (rows + columns) * 2 + 10])
    image = Image.fromarray(smooth.astype(np.uint8).transpose(1, 2, 0))
    pixels = as_pixels(image).contiguous().numpy()
    expected = np.asarray(as_pillow(kind, sign, image)).transpose(2, 0, 1).astype(int)
    gap = np.abs(KINDS[kind](pixels, sign).astype(int) - expected)
    if kind in (5, 6):  # Pillow does not mix a photo's edge with the grey beside it
        assert np.median(gap) == 0
        assert np.mean(gap > 1) < 0.03
    else:
        assert gap.max() == 0


def test_flat_channels_have_no_contrast_to_stretch() -> None:
    flat = np.full((3, 8, 8), 60, np.uint8)
    for kind in (3, 4):
        assert np.array_equal(KINDS[kind](flat, 1), flat)


def test_a_rotation_turns_about_the_middle() -> None:
    pixels = np.full((3, 64, 64), 60, np.uint8)
    pixels[:, 10:14, 30:34] = 200
    turned = KINDS[9](pixels, 1)
    assert (turned[:, 0, 0] == GREY).all()
    row, column = np.argwhere(turned[0] > 150).mean(0) - 31.5
    angle = np.degrees(np.arctan2(-column, -row))
    assert angle == pytest.approx(15, abs=1)


def test_distortions_are_drawn(backbone: Backbone, photo: Image.Image) -> None:
    generator = np.random.default_rng(0)
    options = {"backbone": backbone, "smallest_crop": 1, "generator": generator}
    undistorted = TrainTransform(backbone=backbone, smallest_crop=1)(photo)
    distorted = TrainTransform(distortions=2, **options)
    num_unchanged = sum(torch.equal(distorted(photo), undistorted) for _ in range(100))
    assert 30 <= num_unchanged <= 55  # (1 - 0.5 * 7 / 10) squared of them
    with pytest.raises(ValueError, match="at least 0: got -1"):
        TrainTransform(distortions=-1, **options)
