"""A Stable Diffusion pipeline of a few thousand random weights, on disk as diffusers writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    StableDiffusionPipeline,
    UNet2DConditionModel,
)
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

MAX_TOKENS = 24


def write_pipeline(folder: Path, *, seed: int = 0) -> Path:
    """Pictures of 32 by 32 pixels; a prompt of up to 24 tokens, one a letter."""
    torch.manual_seed(seed)
    tokenizer = letters(folder.parent / f"{folder.name}-words")
    text = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=MAX_TOKENS,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    unet = UNet2DConditionModel(
        sample_size=16,
        in_channels=4,
        out_channels=4,
        block_out_channels=(8, 16),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=2,
        norm_num_groups=4,
    )
    vae = AutoencoderKL(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=4,
    )
    pipeline = pipeline_of(
        vae=vae, text_encoder=CLIPTextModel(text), tokenizer=tokenizer, unet=unet
    )
    pipeline.save_pretrained(folder, safe_serialization=True)
    return folder


def pipeline_of(**parts: Any) -> StableDiffusionPipeline:
    """Stable Diffusion 1's scheduler beside these parts, and no safety checker."""
    return StableDiffusionPipeline(
        **parts,
        scheduler=DDIMScheduler(clip_sample=False, set_alpha_to_one=False, steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def letters(folder: Path, max_tokens: int = MAX_TOKENS) -> CLIPTokenizer:
    """Letters as tokens; a letter that ends a word is another one."""
    letters = [chr(code) for code in range(33, 127)]
    tokens = [*letters, *(f"{c}</w>" for c in letters), "<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {token: number for number, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return CLIPTokenizer.from_pretrained(folder, model_max_length=max_tokens)
