"""Benchmark ViECap's batched, cached decoding against decoding one photo at a time.

python benchmarks/bench_viecap.py [--layers 12] [--hidden 768] [--vocabulary 50257] [--photos 16]
    [--beam 5] [--words 20] [--rounds 3] [--threads N]

The other way is that of the authors' code: a batch of one photo, whose hypotheses are read
anew by transformers' own ``forward`` at every step. Both search in the same way and their captions
are compared first. Seconds are medians; both are measured in every round, so that a busy moment of
the machine hits both. Weights are random, so captions run to their greatest length.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from captioning.decoding.beam import BeamSearch
from captioning.decoding.words_to_tokens import find_captions
from captioning.interfaces import AbstractDecoderState, AbstractStepper
from captioning.models.viecap import ViECap
from captioning.text.entity_index import EntityIndex
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Batch

EMBEDDING, NUM_ENTITIES = 512, 700
PROMPT_WORDS = ("there", "are", "something", "in", "image")


@dataclass(frozen=True, kw_only=True)
class History(AbstractDecoderState):
    """Prompt vectors ``(N, D)`` with all tokens ``(G, t)`` so far."""

    prompt: Tensor
    tokens: Tensor | None

    def select(self, index: Tensor) -> History:
        """Select hypotheses by index."""
        return History(prompt=self.prompt, tokens=self.tokens[index])


class WithoutCache(AbstractStepper):
    """Hypotheses of one photo, computed without a cache at every step."""

    def __init__(self, model: ViECap) -> None:
        self.network, self.words = model.network, model.network.get_input_embeddings()

    def step(self, tokens: Tensor, state: History) -> tuple[Tensor, History]:
        """Compute the next step; the begin token is ignored."""
        begun = state.tokens is not None
        read = torch.cat([state.tokens, tokens[:, None]], 1) if begun else tokens.new_zeros(1, 0)
        vectors = torch.cat([state.prompt.expand(len(read), -1, -1), self.words(read)], dim=1)
        logits = self.network(inputs_embeds=vectors, use_cache=False).logits[:, -1]
        return logits.log_softmax(-1), History(prompt=state.prompt, tokens=read)


def build(options: argparse.Namespace) -> ViECap:
    """GPT-2 of the given sizes with ViECap's projector and random weights."""
    torch.manual_seed(0)
    fixed = len(PROMPT_WORDS) + 4  # and four special tokens
    words = [*PROMPT_WORDS, *(f"w{number}" for number in range(options.vocabulary - fixed))]
    vectors = torch.nn.functional.normalize(torch.randn(NUM_ENTITIES, EMBEDDING), dim=-1)
    entities = EntityIndex(
        names=tuple(f"w{number}" for number in range(NUM_ENTITIES)), embeddings=vectors
    )
    settings = {"beam_size": options.beam, "length_penalty": 1.0, "exact": False}
    model = ViECap(
        feature_size=EMBEDDING,
        hidden_size=options.hidden,
        num_layers=options.layers,
        num_heads=options.hidden // 64,
        tied=False,
        entities=entities,
        temperature=0.02,
        threshold=0.2,
        tokenizer=WordTokenizer(words=words),
        search=BeamSearch.with_settings(max_length=options.words, **settings),
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3)
    return model.eval()


def make_batch(number: int) -> Batch:
    """Random embeddings of photos."""
    generator = torch.Generator().manual_seed(1)
    names = tuple(map(str, range(number)))
    return Batch(
        rows=torch.arange(number),
        sample_ids=names,
        image_ids=names,
        image_index=torch.arange(number),
        regions=torch.randn(number, 1, EMBEDDING, generator=generator),
    )


@torch.inference_mode()
def one_by_one(model: ViECap, batch: Batch) -> list[str]:
    """Caption each photo separately."""
    captions, stepper = [], WithoutCache(model)
    embeddings, named = model._embeddings_and_entities(batch)
    for embedding, row in zip(embeddings, named, strict=True):
        hard, _ = model._hard_prompts(row[None], 1)
        soft = model.projector(embedding[None])
        prompt = torch.cat([soft, stepper.words(hard)], dim=1)[0]
        state = History(prompt=prompt, tokens=None)
        parts = {"stepper": stepper, "tokenizer": model.tokenizer, "image_ids": ["0"]}
        captions.append(find_captions(model.search, state, **parts)[0][0].caption)
    return captions


def seconds(caption_all: Callable[[], list[str]]) -> float:
    """Seconds to caption all photos."""
    begin = time.perf_counter()
    caption_all()
    return time.perf_counter() - begin


def main() -> None:
    """Compare the captions, then time both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    defaults = {"layers": 12, "hidden": 768, "vocabulary": 50257, "photos": 16, "beam": 5}
    for name, value in (defaults | {"words": 20, "rounds": 3, "threads": 0}).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    model, batch = build(options), make_batch(options.photos)
    variants = {
        "one by one": lambda: one_by_one(model, batch),
        "batched": lambda: [prediction.caption for prediction in model.generate(batch)],
    }
    captions = {
        name: caption_all() for name, caption_all in variants.items()
    }  # this round warms up
    same = sum(map(str.__eq__, *captions.values()))
    print(
        f"{same} of {options.photos} captions are the same; {len(set(captions['batched']))} differ"
    )
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(options.rounds):
        for name, caption_all in variants.items():
            times[name].append(seconds(caption_all))
    for name, values in times.items():
        middle = median(values)
        print(f"{name}: {middle:.2f} s, {options.photos / middle:.2f} photos/s")
    print(f"batched is {median(times['one by one']) / median(times['batched']):.1f} times as fast")


if __name__ == "__main__":
    main()
