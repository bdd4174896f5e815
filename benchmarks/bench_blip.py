"""Benchmark BLIP's training step against plain transformers code with the same weights.

python benchmarks/bench_blip.py [--layers 12] [--hidden 768] [--side 384] [--images 4]
    [--captions 1] [--words 12] [--vocabulary 30524] [--rounds 5] [--threads N]

Plain code is `BlipForConditionalGeneration` with labels: the prompt's masked, padding as it comes.
Losses of both are compared first. Seconds are medians; both are measured in every round, so that a
busy moment of the machine hits both.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BlipConfig, BlipForConditionalGeneration

from captioning.decoding.greedy import GreedySearch
from captioning.models.blip import Blip
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Batch
from captioning.vision.blip import BlipVision


def make_batch(options: argparse.Namespace) -> Batch:
    """Random pixels, and captions of ``words / 2`` to ``words`` tokens, longest first."""
    generator = torch.Generator().manual_seed(0)
    number = options.images * options.captions
    lengths = torch.linspace(options.words, options.words / 2, number).round().long()
    shape = (number, options.words + 2)
    tokens = torch.randint(4, options.vocabulary, shape, generator=generator)
    places = torch.arange(options.words + 2)
    tokens[:, 0] = 1
    tokens[places == lengths[:, None] + 1] = 2
    mask = places < lengths[:, None] + 2
    return Batch(
        rows=torch.arange(number),
        sample_ids=tuple(map(str, range(number))),
        image_ids=tuple(map(str, range(options.images))),
        image_index=torch.arange(number) % options.images,
        images=torch.randn(options.images, 3, options.side, options.side, generator=generator),
        tokens=tokens.masked_fill(~mask, 0),
        token_mask=mask,
    )


def build(
    options: argparse.Namespace, *, checkpointing: bool = False
) -> tuple[Blip, BlipForConditionalGeneration]:
    """Build this framework's model and the transformers model with the same parameters."""
    sizes = {
        "hidden_size": options.hidden,
        "num_hidden_layers": options.layers,
        "num_attention_heads": options.hidden // 64,
        "intermediate_size": 4 * options.hidden,
    }
    words = {"vocab_size": options.vocabulary, "encoder_hidden_size": options.hidden}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "sep_token_id": 2}
    vision = {**sizes, "image_size": options.side, "patch_size": 16}
    theirs = BlipForConditionalGeneration(
        BlipConfig(
            text_config={**sizes, **words, **ids, "label_smoothing": 0.1}, vision_config=vision
        )
    )
    tokenizer = WordTokenizer(words=[f"w{number}" for number in range(options.vocabulary - 4)])
    ours = Blip(
        feature_size=options.hidden,
        hidden_size=options.hidden,
        num_layers=options.layers,
        num_heads=options.hidden // 64,
        intermediate_size=4 * options.hidden,
        backbone=BlipVision(
            network=with_same_parameters(theirs.vision_model), checkpointing=checkpointing
        ),
        checkpointing=checkpointing,
        tokenizer=tokenizer,
        search=GreedySearch.with_settings(max_length=20),
    )
    theirs.text_decoder.label_smoothing = 0.1
    ours.decoder.text = theirs.text_decoder
    return ours.train(), theirs.train()


def with_same_parameters(network: nn.Module) -> Any:
    """Copy the modules that this framework modifies, but share their parameters."""
    copied = copy.deepcopy(network)
    for new, old in zip(copied.modules(), network.modules(), strict=True):
        new._parameters = old._parameters
    return copied


def plain_loss(model: BlipForConditionalGeneration, batch: Batch) -> Tensor:
    """Loss as code around transformers computes it."""
    labels = batch.tokens.masked_fill(~batch.token_mask, -100)
    labels[:, 0] = -100
    return model(
        pixel_values=batch.images[batch.image_index],
        input_ids=batch.tokens,
        attention_mask=batch.token_mask.long(),
        labels=labels,
    ).loss


def seconds(loss_of: Callable[[], Tensor], optimizer: torch.optim.Optimizer) -> float:
    """Seconds of a training step: forward, backward and update."""
    begin = time.perf_counter()
    loss_of().backward()
    optimizer.step()
    optimizer.zero_grad()
    return time.perf_counter() - begin


SIZES = {"layers": 12, "hidden": 768, "side": 384, "captions": 1, "words": 12, "vocabulary": 30524}


def make_parser(description: str, **numbers: int) -> argparse.ArgumentParser:
    """Build an argument parser for model sizes and other integers with defaults."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in (SIZES | {"threads": 0} | numbers).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser


def main() -> None:
    """Compare the losses, then time both models."""
    options = make_parser(__doc__, images=4, rounds=5).parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    ours, theirs = build(options)
    batch = make_batch(options)
    variants = {
        "plain": lambda: plain_loss(theirs, batch),
        "ours": lambda: ours.losses(batch).total,
    }
    with torch.no_grad():
        print(
            "losses: "
            + ", ".join(
                f"{name} {compute_loss().item():.6f}" for name, compute_loss in variants.items()
            )
        )
    optimizer = torch.optim.AdamW(ours.parameters(), lr=1e-6)
    times: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(options.rounds + 1):
        for name, compute_loss in variants.items():
            spent = seconds(compute_loss, optimizer)
            if number:  # the first round warms up
                times[name].append(spent)
    for name, values in times.items():
        middle = median(values)
        print(f"{name}: {middle:.3f} s a step, {len(batch) / middle:.2f} captions/s")
    print(f"plain / ours: {median(times['plain']) / median(times['ours']):.2f}")


if __name__ == "__main__":
    main()
