"""A tiny LLaVA that names the colour of a photo, for servers of models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from tests.image_text_folders import llava

COLOURS = {
    "red": (220, 20, 30),
    "green": (20, 180, 40),
    "blue": (30, 40, 220),
    "yellow": (230, 220, 30),
    "white": (240, 240, 240),
    "pink": (240, 130, 200),
    "brown": (110, 60, 20),
    "grey": (120, 120, 120),
}
ENDLESS = (0, 0, 0)  # of this one the model never stops to talk
PHOTOS_A_COLOUR = 5
SIDE = 48
STEPS = 240


def caption_of(colour: str) -> str:
    """What the model learns to say."""
    return f"A {colour} wall."


def shade(colour: tuple[int, int, int], number: int) -> tuple[int, int, int]:
    """One of the shades that tell photos of a colour apart."""
    red, green, blue = (max(0, value - 3 * number) for value in colour)
    return red, green, blue


def save_photos(folder: Path) -> list[Path]:
    """Forty photos: eight colours in five shades."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, colour in COLOURS.items():
        for number in range(PHOTOS_A_COLOUR):
            paths.append(folder / f"{name}{number}.png")
            Image.new("RGB", (SIDE, SIDE), shade(colour, number)).save(paths[-1])
    return sorted(paths)


def save_colour_model(folder: Path, *, prompts: Sequence[str]) -> Path:
    """The model in the hub's layout, trained for some seconds; the same weights each time.

    Args:
        folder: gets it.
        prompts: that it answers.
    """
    torch.manual_seed(0)
    network, processor = llava()
    examples = [
        _example(processor, prompt, shade(colour, number), caption_of(name))
        for prompt in prompts
        for name, colour in COLOURS.items()
        for number in range(PHOTOS_A_COLOUR)
    ]
    examples += [_example(processor, prompt, ENDLESS, "and" * 70, ends=False) for prompt in prompts]
    network.train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, STEPS)
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        chosen = torch.randperm(len(examples), generator=generator)[:16].tolist()
        chosen[0] = len(examples) - 1  # the endless one is rare
        optimiser.zero_grad()
        network(**_joined([examples[place] for place in chosen])).loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    network.eval().save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def _example(
    processor: Any, prompt: str, colour: tuple[int, int, int], answer: str, *, ends: bool = True
) -> dict[str, torch.Tensor]:
    turns = [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": prompt}]},
    ]
    text = processor.apply_chat_template(turns, add_generation_prompt=True)
    photo = Image.new("RGB", (SIDE, SIDE), colour)
    read = processor(images=photo, text=text, return_tensors="pt")
    said = processor.tokenizer(f" {answer}", add_special_tokens=False).input_ids
    said += [processor.tokenizer.eos_token_id] * ends
    begun = read["input_ids"][0]
    tokens = torch.cat([begun, torch.tensor(said)])
    labels = tokens.clone()
    labels[: len(begun)] = -100
    return {"input_ids": tokens, "labels": labels, "pixel_values": read["pixel_values"][0]}


def _joined(examples: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    pad = torch.nn.utils.rnn.pad_sequence
    tokens = pad([one["input_ids"] for one in examples], batch_first=True)
    lengths = torch.tensor([len(one["input_ids"]) for one in examples])
    return {
        "input_ids": tokens,
        "attention_mask": (torch.arange(tokens.shape[1]) < lengths[:, None]).long(),
        "labels": pad([one["labels"] for one in examples], batch_first=True, padding_value=-100),
        "pixel_values": torch.stack([one["pixel_values"] for one in examples]),
    }
