"""Small networks of random weights that judge or caption photos, in the layout of the hub's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    BertTokenizerFast,
    BlipConfig,
    BlipForConditionalGeneration,
    BlipForImageTextRetrieval,
    BlipImageProcessor,
    BlipProcessor,
    PreTrainedTokenizerFast,
    SiglipConfig,
    SiglipImageProcessor,
    SiglipModel,
    SiglipProcessor,
)

from tests.tiny import CAPTIONS

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DEC]", "[ENC]")
QUESTION = ('"', "?", ".", "yes", "no", "does", "caption", "describe", "image", "answer", "or")
VISION = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 16,
}
TEXT = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 48,
}


def words() -> list[str]:
    return [
        *SPECIAL,
        *QUESTION,
        "picture",
        "of",
        *sorted({w for text in CAPTIONS for w in text.split()}),
    ]


def bert_tokenizer() -> BertTokenizerFast:
    vocabulary = {word: number for number, word in enumerate(words())}
    return BertTokenizerFast(vocab=vocabulary, bos_token="[DEC]")


def _blip_config() -> BlipConfig:
    text = TEXT | {
        "vocab_size": len(words()),
        "encoder_hidden_size": VISION["hidden_size"],
        "pad_token_id": 0,
        "bos_token_id": words().index("[DEC]"),
        "eos_token_id": 3,
        "sep_token_id": 3,
        "initializer_range": 0.5,
    }
    return BlipConfig(text_config=text, vision_config=VISION, image_text_hidden_size=8)


def _save(network: Any, folder: Path, seed: int) -> Path:
    """Weights large enough that photos and words make a difference."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.3, generator=generator)
    network.save_pretrained(folder)
    size = {"height": 32, "width": 32}
    BlipProcessor(BlipImageProcessor(size=size), bert_tokenizer()).save_pretrained(folder)
    return folder


def save_blip_matching(folder: Path, *, seed: int = 0) -> Path:
    """A BLIP for retrieval."""
    return _save(BlipForImageTextRetrieval(_blip_config()), folder, seed)


def save_blip_captioner(folder: Path, *, seed: int = 0) -> Path:
    """A BLIP captioner."""
    return _save(BlipForConditionalGeneration(_blip_config()), folder, seed)


def save_siglip(folder: Path, *, seed: int = 0) -> Path:
    """A SigLIP with words as tokens."""
    torch.manual_seed(seed)
    tokenizer = bert_tokenizer()
    config = SiglipConfig(
        text_config=TEXT | {"vocab_size": len(words()), "projection_size": 16},
        vision_config=VISION,
    )
    network = SiglipModel(config)
    with torch.no_grad():
        network.logit_scale.fill_(1.5)
        network.logit_bias.fill_(-0.5)
    network.save_pretrained(folder)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, pad_token="[PAD]")
    size = {"height": 32, "width": 32}
    SiglipProcessor(SiglipImageProcessor(size=size), fast).save_pretrained(folder)
    return folder
