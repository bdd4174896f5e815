"""Benchmark a language model's answers to ToCa's prompts against transformers' ``generate``.

python benchmarks/bench_writer.py [--size 7b|135m|small] [--batches 32 128 512] [--rounds 2]
    [--tokens 16] [--head 230] [--tail 24] [--precision bfloat16] [--device auto]

``7b`` has the sizes of Mistral-7B, ``135m`` of SmolLM2; weights are random. A batch's prompts share
``--head`` tokens (an instruction and five examples), then have up to ``--tail`` of their own, and
every answer has ``--tokens``. ``usual`` is transformers' ``generate`` on the whole prompts, padded.
A line of JSON a size of batch: answers per second, and GiB of the GPU.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from bench_pretrained import gib, medians
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PreTrainedTokenizerFast

from augmentation.writing import causal_writer
from augmentation.writing.prompt import Prompt
from captioning.results.versions import versions
from captioning.runtime.devices import chosen_device

VOCABULARY = 32_000
CONFIGS: dict[str, Callable[[], Any]] = {
    "7b": lambda: MistralConfig(vocab_size=VOCABULARY, sliding_window=None),
    "135m": lambda: LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
    ),
    "small": lambda: LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
    ),
}


def main() -> None:
    """Run the measurements that the arguments request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=tuple(CONFIGS), default="small")
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--head", type=int, default=230)
    parser.add_argument("--tail", type=int, default=24)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    options.device = str(chosen_device(options.device))
    print(json.dumps(vars(options) | versions()), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        network, tokenizer = made(options, Path(folder))
        with patch.object(causal_writer, "load_causal", lambda *_, **__: network):
            writer = causal_writer.CausalWriter(
                name=folder,
                max_new_tokens=options.tokens,
                precision=options.precision,
                device=options.device,
            )
    for batch in options.batches:
        prompts = prompts_of(options, batch)
        ways = {
            "ours": lambda prompts=prompts: writer.answers(prompts, seed=0),
            "usual": lambda prompts=prompts: generate(network, tokenizer, prompts, options.tokens),
        }
        print(json.dumps({"batch": batch, **measured(ways, batch, options)}), flush=True)


def made(options: argparse.Namespace, folder: Path) -> tuple[Any, PreTrainedTokenizerFast]:
    """Randomly initialised network on the device, and a tokenizer of made-up words."""
    names = [f"w{number}" for number in range(VOCABULARY - 2)]
    words = {"<end>": 0, "\n": 1, **{name: number + 2 for number, name in enumerate(names)}}
    plain = Tokenizer(WordLevel(words, unk_token="w0"))
    plain.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<end>")
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = CONFIGS[options.size]()
    with torch.device(options.device):
        network = AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, options.precision)
        ).eval()
    config.save_pretrained(folder)
    return network, tokenizer


def prompts_of(options: argparse.Namespace, batch: int) -> list[Prompt]:
    """Prompts of made-up words; the last ``tail`` words, or up to seven fewer, are unique."""
    draws = random.Random(batch)

    def text(number: int) -> str:
        return " ".join(f"w{draws.randrange(1, VOCABULARY - 2)}" for _ in range(number))

    head = text(options.head)
    return [
        Prompt(
            instruction=head,
            examples=(),
            question=text(options.tail - draws.randrange(8)),
            names=("w1", "w2"),
        )
        for _ in range(batch)
    ]


@torch.inference_mode()
def generate(network: Any, tokenizer: Any, prompts: list[Prompt], tokens: int) -> list[str]:
    """Usual generation: full prompts, padded on the left."""
    rows = [
        tokenizer(p.opening() + p.ending(), add_special_tokens=False)["input_ids"] for p in prompts
    ]
    ids, mask = causal_writer.padded_left(rows)
    ids, mask = ids.to(network.device), mask.to(network.device)
    settings = {"do_sample": True, "temperature": 0.3, "top_p": 0.9, "top_k": 64}
    output = network.generate(
        input_ids=ids,
        attention_mask=mask,
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        pad_token_id=0,
        eos_token_id=0,
        **settings,
    )
    return tokenizer.batch_decode(output[:, ids.shape[1] :])


def measured(
    ways: dict[str, Callable[[], Any]], batch: int, options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Answers per second and GiB of each implementation, in turn after a warm-up round."""
    seconds = medians(lambda way: ways[way](), tuple(ways), options)
    rates = {way: round(batch / spent, 1) for way, spent in seconds.items()}
    memory = {} if options.device == "cpu" else {way: gib(call) for way, call in ways.items()}
    return {"answers_per_s": rates} | ({"gib": memory} if memory else {})


if __name__ == "__main__":
    main()
