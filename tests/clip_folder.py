"""A small CLIP without training, in the layout of open_clip's folders and of the hub's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tokenizers.processors import TemplateProcessing
from transformers import (
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPProcessor,
    PreTrainedTokenizerFast,
)

from captioning.text.causal import DOCUMENT_BREAK
from tests.causal_folder import byte_pairs

SIZES = {
    "embed_dim": 8,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 12, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}


def clip_folder(path: Path, *, seed: int = 0) -> Path:
    """The folder ``path``, newly made; the test is skipped where open_clip is not installed."""
    open_clip = pytest.importorskip("open_clip", reason="needs open_clip")
    torch.manual_seed(seed)
    path.mkdir()
    config = {"model_cfg": SIZES, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3}}
    (path / "open_clip_config.json").write_text(json.dumps(config))
    save_file(open_clip.CLIP(**SIZES).state_dict(), path / "open_clip_model.safetensors")
    return path


def hub_clip_folder(path: Path, *, dim: int = 8, seed: int = 0) -> Path:
    """A CLIP of transformers with the tokenizer of `byte_pairs`, which knows every text."""
    tokenizer = byte_pairs()
    end = tokenizer.token_to_id(DOCUMENT_BREAK)
    tokenizer.post_processor = TemplateProcessing(
        single=f"$A {DOCUMENT_BREAK}", special_tokens=[(DOCUMENT_BREAK, end)]
    )
    ends = dict.fromkeys(("eos_token", "pad_token"), DOCUMENT_BREAK)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ends)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "initializer_range": 0.3, "hidden_act": "quick_gelu"}
    text = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 24}
    text |= {"eos_token_id": end, "pad_token_id": end, "bos_token_id": end}
    vision = {"image_size": 32, "patch_size": 16}
    config = CLIPConfig(text_config=sizes | text, vision_config=sizes | vision, projection_dim=dim)
    torch.manual_seed(seed)
    CLIPModel(config).save_pretrained(path)
    crop = {"height": 32, "width": 32}
    photos = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=crop)
    CLIPProcessor(photos, fast).save_pretrained(path)
    return path
