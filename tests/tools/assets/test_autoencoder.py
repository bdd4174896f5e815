"""Training of the autoencoder: its losses, what is frozen, and a small run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig

from augmentation.image_replacement.autoencoder import PatchAutoencoder
from augmentation.image_replacement.training.denoising import LabelReader
from captioning.config.compose import compose_config
from captioning.vision.backbones import build_backbone
from tests.task_calls import call, is_record
from tools.assets.autoencoder import (
    AutoencoderLoss,
    AutoencoderTraining,
    FeatureDistance,
    edge_distance,
    starting_model,
    train_autoencoder,
)

PICTURES = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1
SMALL = [
    "model.latent_channels=6",
    "training.latent_noise=0.0",
    "training.features=0.0",
    "training.objects=1.0",
    "model.block_out_channels=[4,4,8,8]",
    "model.blocks=[1,1,3]",
    "training.batch_size=4",
    "training.log_every=1",
    "training.val_every=4",
    "training.checkpoint_every=2",
]
Made = Callable[..., DictConfig]


def training(**changed: float) -> AutoencoderTraining:
    """The config's, whose latents are trained."""
    config = compose_config("autoencoder")
    return AutoencoderTraining.of({**config.training, "decoder_only": False, **changed})


def features(name: str) -> FeatureDistance:
    return FeatureDistance(backbone=build_backbone(name=name, weights="random", image_size=32))


def test_edges_do_not_see_brightness() -> None:
    even = torch.ones(3, 1, 32, 32)
    assert edge_distance(PICTURES + 0.5, PICTURES, even).item() == pytest.approx(0, abs=1e-6)
    step = torch.zeros(1, 1, 2, 4)
    step[..., 2:] = 0.6
    weights = torch.ones(1, 1, 2, 4)
    assert edge_distance(step, torch.zeros_like(step), weights).item() == pytest.approx(0.2)
    weights[..., 2:] = 3  # the step ends there
    assert edge_distance(step, torch.zeros_like(step), weights).item() == pytest.approx(0.6)


def test_features_see_blur_and_leave_the_backbone_alone() -> None:
    distance = features("test_efficientnet.r160_in1k")
    decoded = PICTURES.clone().requires_grad_()
    assert distance(PICTURES, PICTURES).item() == 0
    blurred = torch.nn.functional.avg_pool2d(decoded, 3, 1, 1)
    distance_value = distance(blurred, PICTURES)
    distance_value.backward()
    assert distance_value.item() > 0.01
    assert float(decoded.grad.abs().sum()) > 0
    assert all(value.grad is None for value in distance.backbone.parameters())


def test_every_part_of_the_loss_counts() -> None:
    torch.manual_seed(0)
    model = PatchAutoencoder(latent_channels=6, block_out_channels=(4, 4, 8, 8))
    model.start_from(PICTURES)
    maps = torch.randint(3, (3, 4, 4))
    reader = LabelReader(6, 2)

    def loss(**changed: float) -> float:
        plain = dict.fromkeys(("edges", "features", "labels", "spread", "latent_noise"), 0.0)
        plain["objects"] = 1.0
        settings = training(**plain | changed)
        distance = features("test_efficientnet.r160_in1k") if changed.get("features") else None
        labels = reader if changed.get("labels") else None
        loss_module = AutoencoderLoss(
            model=model, settings=settings, features=distance, labels=labels
        )
        return loss_module(PICTURES, maps, torch.Generator().manual_seed(0)).item()

    decoded, latents = model(PICTURES), model.encode(PICTURES).latent_dist.mean
    even, errors = torch.ones(3, 1, 32, 32), (decoded - PICTURES).abs()
    plain = errors.mean().item()
    assert loss() == pytest.approx(plain, rel=1e-5)
    assert loss(spread=2.0) == pytest.approx(plain + 2 * latents.square().mean().item(), rel=1e-4)
    assert loss(edges=0.5) == pytest.approx(
        plain + 0.5 * edge_distance(decoded, PICTURES, even).item(), rel=1e-4
    )
    assert loss(labels=0.5) == pytest.approx(plain + 0.5 * reader.loss(latents, maps).item())
    object_mask = (maps > 0).repeat_interleave(8, 1).repeat_interleave(8, 2)[:, None].float()
    weights = 1 + 4 * object_mask
    expected = (errors * weights).mean() / weights.mean()
    assert loss(objects=5.0) == pytest.approx(expected.item(), rel=1e-5)
    assert loss(latent_noise=0.5) > plain + 0.01
    torch.manual_seed(1)
    assert loss(features=1.0) > plain + 0.01


def test_noise_is_in_proportion_to_each_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    model = PatchAutoencoder(latent_channels=2, block_out_channels=(4, 4, 8, 8))
    model.start_from(PICTURES)
    with torch.no_grad():
        model.analysis.weight[1] *= 20
    latents = model.encode(PICTURES).latent_dist.mean
    read: list[torch.Tensor] = []
    decode = model.decode
    monkeypatch.setattr(model, "decode", lambda noisy: [read.append(noisy), decode(noisy)][1])
    settings = training(objects=1.0, edges=0.0, spread=0.0, latent_noise=0.5)
    loss = AutoencoderLoss(model=model, settings=settings)
    loss(PICTURES, torch.zeros(3, 4, 4, dtype=torch.int64), torch.Generator().manual_seed(0))
    shares = (read[0] - latents).std((0, 2, 3)) / latents.std((0, 2, 3))
    assert shares.tolist() == pytest.approx([0.5, 0.5], rel=0.3)


def test_a_small_run_writes_an_autoencoder_and_its_card(config: Made, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "autoencoder"
    chosen = config("autoencoder", *SMALL, "training.num_steps=16", f"out={out}")
    card = call(train_autoencoder, chosen)
    assert is_record(card["config"], chosen)
    assert card == json.loads((out / "card.json").read_text())
    assert (card["data"]["train"]["photos"], card["data"]["val"]["photos"]) == (8, 4)
    assert card["val"]["psnr"] == pytest.approx(card["history"][-1]["psnr"], abs=0.01)
    assert card["val"]["psnr"] > card["history"][3]["psnr"] > 10
    model = PatchAutoencoder.from_pretrained(out)
    assert card["parameters"] == sum(value.numel() for value in model.parameters())
    assert model.config.sample_size == 32


def test_the_decoder_alone_goes_on_from_an_autoencoder(config: Made, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    call(train_autoencoder, config("autoencoder", *SMALL, "training.num_steps=4", f"out={first}"))
    changed = [f"start={first}", "training.decoder_only=true", f"out={second}"]
    call(train_autoencoder, config("autoencoder", *SMALL, "training.num_steps=4", *changed))
    before = PatchAutoencoder.from_pretrained(first).state_dict()
    after = PatchAutoencoder.from_pretrained(second).state_dict()
    unchanged = {name for name, value in before.items() if torch.equal(value, after[name])}
    assert unchanged == {name for name in before if name.startswith(("analysis.", "down."))}


def test_the_start_must_be_an_autoencoder(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nothing"):
        starting_model(str(tmp_path / "nothing"), {}, [], size=32)


def test_each_width_needs_its_number_of_blocks() -> None:
    with pytest.raises(ValueError, match=r"needs 2 numbers in blocks: got \[1, 1, 2\]"):
        PatchAutoencoder(block_out_channels=(8, 24, 48))
