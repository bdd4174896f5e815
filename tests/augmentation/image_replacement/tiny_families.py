"""Stable Diffusion XL and Flux of a few thousand random weights, as diffusers writes them."""

from __future__ import annotations

from pathlib import Path

import torch
from diffusers import (
    AutoencoderKL,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)
from tiny_pipeline import MAX_TOKENS, letters
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    PreTrainedTokenizerFast,
    T5Config,
    T5EncoderModel,
)

HIDDEN = 16


def _clip(tokenizer) -> CLIPTextConfig:
    return CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        projection_dim=HIDDEN,
        max_position_embeddings=MAX_TOKENS,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )


def write_xl(folder: Path, *, variant: str | None = None) -> Path:
    """Pictures of 32 by 32 pixels."""
    torch.manual_seed(0)
    tokenizer = letters(folder.parent / f"{folder.name}-words")
    unet = UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(8, 16),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=2,
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        transformer_layers_per_block=1,
        projection_class_embeddings_input_dim=HIDDEN + 6 * 8,
        cross_attention_dim=2 * HIDDEN,
        norm_num_groups=4,
    )
    vae = AutoencoderKL(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=4,
    )
    pipeline = StableDiffusionXLPipeline(
        vae=vae,
        text_encoder=CLIPTextModel(_clip(tokenizer)),
        text_encoder_2=CLIPTextModelWithProjection(_clip(tokenizer)),
        tokenizer=tokenizer,
        tokenizer_2=tokenizer,
        unet=unet,
        scheduler=EulerDiscreteScheduler(),
        add_watermarker=False,
    )
    pipeline.save_pretrained(folder, safe_serialization=True, variant=variant)
    return folder


def write_flux(folder: Path) -> Path:
    """Pictures of 8 by 8 pixels and more; prompts of words for its second text encoder."""
    torch.manual_seed(0)
    tokenizer = letters(folder.parent / f"{folder.name}-words")
    second = _t5_tokenizer()
    pipeline = FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=AutoencoderKL(
            block_out_channels=(4, 4),
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            latent_channels=1,
            norm_num_groups=1,
            use_quant_conv=False,
            use_post_quant_conv=False,
            shift_factor=0.06,
            scaling_factor=1.5,
        ),
        text_encoder=CLIPTextModel(_clip(tokenizer)),
        tokenizer=tokenizer,
        text_encoder_2=T5EncoderModel(
            T5Config(vocab_size=len(second), d_model=32, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
        ),
        tokenizer_2=second,
        transformer=FluxTransformer2DModel(
            patch_size=1,
            in_channels=4,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=32,
            pooled_projection_dim=HIDDEN,
            axes_dims_rope=(4, 4, 8),
            guidance_embeds=True,
        ),
    )
    pipeline.save_pretrained(folder, safe_serialization=True)
    return folder


def _t5_tokenizer() -> PreTrainedTokenizerFast:
    words = ["<pad>", "</s>", "<unk>", "a", "dog", "cat", "runs"]
    tokenizer = Tokenizer(WordLevel({w: n for n, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **names)
