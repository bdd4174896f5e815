"""The autoencoder begins as principal components, and loads as diffusers saves it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from augmentation.image_replacement.autoencoder import PatchAutoencoder

PICTURES = torch.rand(5, 3, 16, 24, generator=torch.Generator().manual_seed(0)) * 2 - 1
SMALL = {"block_out_channels": (4, 4, 8, 8), "blocks": (0, 1, 1)}


def error(model: PatchAutoencoder) -> float:
    with torch.inference_mode():
        return float((model(PICTURES) - PICTURES).square().mean())


@pytest.mark.parametrize("patch", [4, 8])
def test_before_training_it_is_the_best_linear_one(patch: int) -> None:
    torch.manual_seed(0)
    errors = []
    shape = SMALL if patch == 8 else {"block_out_channels": (4, 4, 8), "blocks": (0, 1)}
    for channels in (2, 8, 20):
        model = PatchAutoencoder(latent_channels=channels, **shape)
        model.start_from(PICTURES)
        errors.append(error(model))
        latents = model.encode(PICTURES).latent_dist.mean.detach()
        assert latents.shape == (5, channels, 16 // patch, 24 // patch)
        assert float(latents.square().mean().sqrt()) == pytest.approx(1, rel=0.02)
        assert latents.mean((0, 2, 3)).abs().max() < 1e-4
        patches = torch.nn.functional.pixel_unshuffle(PICTURES, patch).transpose(0, 1).flatten(1)
        centred = patches - patches.mean(1, keepdim=True)
        lost = torch.linalg.svdvals(centred)[channels:].square().sum() / patches.numel()
        assert errors[-1] == pytest.approx(float(lost), rel=1e-3)
    assert errors == sorted(errors, reverse=True)


def test_every_weight_can_be_trained() -> None:
    torch.manual_seed(0)
    model = PatchAutoencoder(latent_channels=4, **SMALL)
    model.start_from(PICTURES)
    rates = [0.05, 0.05, 0.05]
    before = error(model)
    for rate in rates:
        (model(PICTURES) - PICTURES).square().mean().backward()
        with torch.no_grad():
            for value in model.parameters():
                value -= rate * value.grad
        last = {name: value.grad.clone() for name, value in model.named_parameters()}
        model.zero_grad()
    assert error(model) < before
    assert all(float(value.abs().max()) > 0 for value in last.values())


def test_it_is_saved_and_loaded_with_its_scale(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = PatchAutoencoder(latent_channels=4, **SMALL)
    model.start_from(PICTURES)
    model.register_to_config(scaling_factor=0.7)
    model.save_pretrained(tmp_path)
    again = PatchAutoencoder.from_pretrained(tmp_path)
    assert again.config.scaling_factor == 0.7
    latents = model.encode(PICTURES).latent_dist.sample()
    assert torch.equal(again.decode(latents, return_dict=False)[0], model.decode(latents).sample)
    assert torch.equal(again.encode(PICTURES, return_dict=False)[0].mode(), latents)


def test_standardised_channels_give_the_same_pictures() -> None:
    torch.manual_seed(0)
    model = PatchAutoencoder(latent_channels=4, **SMALL)
    model.start_from(PICTURES)
    for value in model.parameters():
        value.data += 0.05 * torch.randn(value.shape)
    with torch.inference_mode():
        before, decoded = model.encode(PICTURES).latent_dist.mean, model(PICTURES)
        deviation = before.transpose(0, 1).flatten(1).std(1)
        model.standardise(deviation)
        after = model.encode(PICTURES).latent_dist.mean
        assert torch.allclose(after * deviation[:, None, None], before, atol=1e-4)
        assert torch.allclose(model(PICTURES), decoded, atol=1e-4)
