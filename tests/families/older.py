"""Small random models of the older image-to-text families."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import transformers

from tests.image_text_folders import IMAGE, SIZE, SIZES, SQUARE, VISION, Parts, byte_pairs

T5_NAMES = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
KOSMOS_NAMES = {**T5_NAMES, "bos_token": "<s>"}


def _kosmos_text(size: int) -> dict[str, Any]:
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    dropout = {"dropout": 0.0, "attention_dropout": 0.0, "max_position_embeddings": 256}
    return {
        "vocab_size": size,
        "embed_dim": 32,
        "layers": 2,
        "ffn_dim": 48,
        "attention_heads": 2,
        **dropout,
        **ids,
    }


def kosmos_2() -> Parts:
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = byte_pairs(special, first="<s>", last="</s>", **KOSMOS_NAMES)
    processor = transformers.Kosmos2Processor(
        transformers.CLIPImageProcessor(**SQUARE), tokenizer, num_patch_index_tokens=16
    )
    # The processor writes 64 places for a photo; a folder cannot say another number.
    config = transformers.Kosmos2Config(
        text_config=_kosmos_text(len(processor.tokenizer)),
        vision_config=VISION,
        latent_query_num=64,
    )
    return transformers.Kosmos2ForConditionalGeneration(config), processor


def pix2struct() -> Parts:
    tokenizer = byte_pairs(["<pad>", "</s>", "<unk>"], last="</s>", **T5_NAMES)
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "d_kv": 16,
        "d_ff": 48,
        "num_layers": 2,
        "num_heads": 2,
        "dropout_rate": 0.0,
    }
    vision = {
        "hidden_size": 32,
        "patch_embed_hidden_size": 192,
        "d_ff": 48,
        "d_kv": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "seq_len": 32,
    }
    config = transformers.Pix2StructConfig(text_config=text, vision_config=vision)
    photos = transformers.Pix2StructImageProcessor(
        max_patches=32, patch_size={"height": 8, "width": 8}
    )
    network = transformers.Pix2StructForConditionalGeneration(config)
    return network, transformers.Pix2StructProcessor(photos, tokenizer)


def vision_encoder_decoder() -> tuple[Any, Parts]:
    mark = "<|endoftext|>"
    model = json.loads(byte_pairs([mark]).backend_tokenizer.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    # GPT-2 has one special token, which here starts, ends and pads.
    tokenizer = transformers.GPT2Tokenizer(vocab=model["vocab"], merges=merges, pad_token=mark)
    end = tokenizer.convert_tokens_to_ids(mark)
    ids = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    decoder = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_positions=64, n_embd=32, n_layer=2, n_head=2, **dropout, **ids
    )
    encoder = transformers.ViTConfig(**VISION)
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        encoder, decoder, decoder_start_token_id=end, tie_word_embeddings=False, **ids
    )
    photos = transformers.ViTImageProcessor(size=SIZE)
    return transformers.VisionEncoderDecoderModel(config), (photos, tokenizer)


FAMILIES: dict[str, Callable[[], Any]] = {
    function.__name__: function for function in (kosmos_2, pix2struct, vision_encoder_decoder)
}
REASONS: dict[str, str] = {}
PROMPTS: dict[str, str] = {"kosmos_2": "An image of", "pix2struct": "A picture of"}
