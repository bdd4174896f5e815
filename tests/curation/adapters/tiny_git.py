"""A small GIT with random weights in the hub's format, and an image folder of plain photos."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    CLIPImageProcessor,
    GitConfig,
    GitForCausalLM,
    GitProcessor,
    PreTrainedTokenizerFast,
)

COLOURS = ("red", "green", "blue", "black", "white", "grey")
WORDS = ("a", "picture", "square", "of", "in", "the", "colour", "very", *COLOURS)
SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")
NUM_CAPTIONS = 2


def write_model(folder: Path) -> None:
    """Weights, config, tokenizer and image processor of a GIT of 16 numbers a token."""
    vocabulary = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
        eos_token="[SEP]",
        bos_token="[CLS]",
        model_input_names=["input_ids", "attention_mask"],
    )
    size = {"height": 16, "width": 16}
    images = CLIPImageProcessor(size=size, crop_size=size)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    config = GitConfig(
        vision_config={**sizes, "num_hidden_layers": 1, "image_size": 16, "patch_size": 8},
        vocab_size=len(vocabulary),
        num_hidden_layers=2,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        **sizes,
    )
    torch.manual_seed(0)
    GitForCausalLM(config).save_pretrained(folder)
    GitProcessor(image_processor=images, tokenizer=fast).save_pretrained(folder)


def write_photos(folder: Path, num_photos: int = 12) -> None:
    """Squares of one colour each, with two captions; the second photo's are wrong."""
    folder.mkdir(parents=True)
    lines = []
    for number in range(num_photos):
        colour = COLOURS[number % len(COLOURS)]
        Image.new("RGB", (16, 16), colour).save(folder / f"{number}.png")
        words = "very very very very picture" if number == 1 else f"a {colour} square"
        captions = [f"{words} of the colour {colour}", f"a picture of a {colour} square"]
        lines.append(json.dumps({"file_name": f"{number}.png", "captions": captions}))
    (folder / "metadata.jsonl").write_text("\n".join(lines) + "\n")
