"""Benchmark dropout with a seed for each sample against torch's dropout, forward and backward.

python benchmarks/bench_dropout.py [--rounds 7] [--threads 1]

Both take the same weights and batch, turn by turn, and times are medians of the process's CPU time,
so that other work on the machine hits both. The first round is left out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from types import SimpleNamespace
from typing import Any

import bench_blip
import bench_cic_bart
import bench_updown
import torch

from captioning.runtime.sample_dropout import use_torchs
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Batch

WORDS = 4000


def updown() -> tuple[Any, Batch]:
    """UpDown of ruotianluo's kind with 400 units: 10 photos with 5 captions each."""
    sizes = dict.fromkeys(("hidden_size", "embedding_size", "projection_size"), 400)
    settings = bench_updown.RUOTIANLUO | sizes | {"attention_size": 256, "vocabulary": WORDS}
    tokenizer = WordTokenizer(words=[f"w{number}" for number in range(WORDS - 4)])
    return bench_updown.build(settings, tokenizer), bench_updown.make_batch(settings, tokenizer)


def cic_bart() -> tuple[Any, Batch]:
    """CIC-BART with 2 layers of 256 units: 4 captions."""
    sizes = {"layers": 2, "hidden": 256, "images": 4, "captions": 1, "regions": 4, "words": 12}
    chosen: Any = SimpleNamespace(**sizes, vocabulary=WORDS)
    return bench_cic_bart.build(chosen), bench_cic_bart.make_batch(chosen)


def blip() -> tuple[Any, Batch]:
    """BLIP with 2 layers of 256 units at 96 pixels: 4 photos with 5 captions each."""
    sizes = {"layers": 2, "hidden": 256, "side": 96, "images": 4, "captions": 5, "words": 12}
    chosen: Any = SimpleNamespace(**sizes, vocabulary=WORDS)
    return bench_blip.build(chosen)[0], bench_blip.make_batch(chosen)


def seconds(model: Any, batch: Batch, seed: int, torchs: bool) -> float:
    """CPU seconds of one forward and backward pass."""
    use_torchs(torchs)
    model.zero_grad()
    torch.manual_seed(seed)
    began = time.process_time()
    model.losses(batch).total.backward()
    return time.process_time() - began


def main() -> None:
    """Print one line for each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    makers: tuple[Callable[[], tuple[Any, Batch]], ...] = (updown, cic_bart, blip)
    for make in makers:
        model, batch = make()
        model.train()
        times: dict[bool, list[float]] = {True: [], False: []}
        for turn in range(options.rounds):
            for torchs in (turn % 2 == 0, turn % 2 == 1):
                times[torchs].append(seconds(model, batch, turn, torchs))
        own, torchs_own = (median(times[torchs][1:]) for torchs in (False, True))
        print(
            f"{make.__name__}: by sample {1000 * own:.0f} ms, torch's {1000 * torchs_own:.0f} ms, "
            f"ratio {own / torchs_own:.2f}"
        )


if __name__ == "__main__":
    main()
