"""A small run from scratch: its folder loads as any pipeline, and draws what it is told."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import DictConfig
from PIL import Image
from safetensors.torch import load_file

from augmentation.image_replacement.autoencoder import PatchAutoencoder
from augmentation.image_replacement.generator import Job
from augmentation.image_replacement.stable_diffusion import StableDiffusion
from augmentation.image_replacement.training.denoising import load_pictures, photo_paths
from captioning.training.rosters import read_roster
from captioning.training.settings import DataSettings
from tests.task_calls import call, is_record
from tools.assets.diffusion import (
    channel_weights,
    encode,
    train_diffusion,
)

SMALL = [
    "vocabulary=600",
    "text.hidden_size=16",
    "text.intermediate_size=16",
    "text.num_hidden_layers=1",
    "text.num_attention_heads=2",
    "unet.sample_size=4",
    "unet.block_out_channels=[8,8]",
    "unet.down_block_types=[CrossAttnDownBlock2D,DownBlock2D]",
    "unet.up_block_types=[UpBlock2D,CrossAttnUpBlock2D]",
    "unet.attention_head_dim=2",
    "unet.norm_num_groups=2",
    "training.num_steps=4",
    "training.batch_size=4",
    "training.log_every=2",
    "training.val_every=2",
    "training.checkpoint_every=2",
    "sheet.number=3",
    "sheet.steps=2",
]


@pytest.fixture(scope="module")
def autoencoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("autoencoder")
    small = {"latent_channels": 5, "block_out_channels": (4, 4, 8, 8), "sample_size": 32}
    model = PatchAutoencoder(**small)
    model.start_from(torch.rand(9, 3, 32, 32) * 2 - 1)
    model.save_pretrained(folder)
    return folder


# diffusers 0.42 hands a tensor to NumPy in the way of NumPy 1
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_small_run_writes_a_pipeline(
    config: Callable[..., DictConfig], autoencoder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "small"
    run_config = config("diffusion", *SMALL, f"autoencoder={autoencoder}", f"out={out}")
    card = call(train_diffusion, run_config)
    assert is_record(card["config"], run_config)
    assert card == json.loads((out / "card.json").read_text())
    assert [entry["step"] for entry in card["history"]] == [2, 4]
    assert all(entry["val loss"] > 0 for entry in card["history"])
    assert set(card["parameters"]) == {"vae", "unet", "text_encoder"}
    assert sorted(path.name for path in (out / "sheets").iterdir()) == ["000002.png", "000004.png"]

    generator = StableDiffusion(model=str(out), num_steps=2, batch_size=2, device="cpu")
    assert (generator.size(), generator.max_tokens) == ((32, 32), 48)
    jobs = [Job(prompt=text, seed=1) for text in ("a red dog", "a red dog", "a beach")]
    first, same, other = generator.generate(jobs)
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)
    parts = generator._pipeline.components
    assert {parts[name].dtype for name in ("unet", "vae", "text_encoder")} == {torch.float32}

    again = call(train_diffusion, run_config)  # finished: the same, without training
    assert again["history"] == card["history"]

    on = [f"start={out}", "training.num_steps=2", "training.lr=0", f"out={tmp_path / 'more'}"]
    call(train_diffusion, config("diffusion", *SMALL, *on))
    before, after = (
        load_file(folder / "unet" / "diffusion_pytorch_model.safetensors")
        for folder in (out, tmp_path / "more")
    )
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_latents_are_kept_by_photos_and_weights(
    config: Callable[..., DictConfig], autoencoder: Path, tmp_path: Path
) -> None:
    paths = photo_paths(read_roster(DataSettings.of(config("diffusion")), "val"))
    model = PatchAutoencoder.from_pretrained(autoencoder).requires_grad_(False)
    settings = {"size": 32, "cache": tmp_path}
    latents = encode(model, paths, **settings)
    expected = model.encode(load_pictures(paths, size=32)).latent_dist.mean
    assert torch.allclose(latents.float(), expected, atol=2e-3)
    assert torch.equal(encode(model, paths, **settings), latents)
    assert len(list(tmp_path.iterdir())) == 1
    encode(model, paths[:2], **settings)
    model.analysis.bias += 1
    assert torch.allclose(encode(model, paths, **settings), latents + 1, atol=4e-3)
    assert len(list(tmp_path.iterdir())) == 3


def test_latents_of_a_photo_that_changed_are_computed_anew(
    autoencoder: Path, tmp_path: Path
) -> None:
    model = PatchAutoencoder.from_pretrained(autoencoder).requires_grad_(False)
    path = tmp_path / "photo.png"
    Image.new("RGB", (32, 32), (200, 20, 20)).save(path)
    settings = {"size": 32, "cache": tmp_path / "latents"}
    red = encode(model, [path], **settings)
    Image.new("RGB", (32, 32), (20, 20, 200)).save(path)
    os.utime(path, ns=(0, 1))  # as small a file, at another time
    assert not torch.equal(encode(model, [path], **settings), red)


def test_channels_that_move_pixels_weigh_more() -> None:
    model = PatchAutoencoder(latent_channels=3, block_out_channels=(4, 4, 8, 8))
    with torch.no_grad():
        model.synthesis.weight.copy_(torch.tensor([3.0, 2.0, 1.0])[None, :, None, None])
    assert torch.allclose(channel_weights(model, power=0), torch.ones(3, 1, 1))
    assert torch.allclose(channel_weights(model, power=1).flatten(), torch.tensor([1.5, 1, 0.5]))
    squared = torch.tensor([9.0, 4, 1]) * 3 / 14
    assert torch.allclose(channel_weights(model, power=2).flatten(), squared)
