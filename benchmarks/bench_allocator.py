"""Benchmark returning freed memory to the operating system, in training steps on a CPU.

python benchmarks/bench_allocator.py [--steps 6] [--rounds 3]
    Steps with glibc's own settings and with this project's, in turns, each in a process of its own
    with one thread. A cell is the median of the rounds: processor seconds a step, of all programs
    and of the system, which other programs on the machine hardly change.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable

import bench_updown
import torch
from torch import Tensor, nn
from torch.nn import functional

from captioning.results.versions import versions
from captioning.runtime.cores import keep_freed_memory, step_ended
from captioning.text.tokenizers.words import WordTokenizer

SIZES = {
    "UpDown, nocaps sizes": bench_updown.NOCAPS,
    "UpDown, ruotianluo form": bench_updown.RUOTIANLUO,
}
WIDE = "49,152 words"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", choices=("own", "kept"), help="time the steps here")
    options = parser.parse_args()
    if options.measure:
        if options.measure == "kept":
            keep_freed_memory()
        print(json.dumps(measured(options.steps)))
        return
    print(json.dumps(versions()))
    print("network | glibc's own: s a step (of it the system's), GiB | memory kept | share")
    rounds = [
        {kind: start(kind, options.steps) for kind in ("own", "kept")}
        for _ in range(options.rounds)
    ]
    for name in (*SIZES, WIDE):
        own, kept = (medians([turn[kind][name] for turn in rounds]) for kind in ("own", "kept"))
        cells = [f"{total:.2f} ({system:.2f}), {size:.2f}" for total, system, size in (own, kept)]
        print(f"{name} | {cells[0]} | {cells[1]} | {kept[0] / own[0]:.2f}", flush=True)


def medians(rounds: list[list[float]]) -> list[float]:
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def start(kind: str, steps: int) -> dict[str, list[float]]:
    command = [sys.executable, __file__, "--measure", kind, "--steps", str(steps)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def measured(steps: int) -> dict[str, tuple[float, float, float]]:
    """CPU seconds per step in user and system mode, and peak memory so far in GiB."""
    torch.set_num_threads(1)
    # the smallest first, as the most memory is of the process
    found = {WIDE: of_wide(10 * steps)}
    return found | {name: of_form(settings, steps) for name, settings in SIZES.items()}


def of_form(settings: dict[str, int], steps: int) -> tuple[float, float, float]:
    tokenizer = WordTokenizer(words=[f"w{i}" for i in range(settings["vocabulary"] - 4)])
    model = bench_updown.build(settings, tokenizer)
    batch = bench_updown.make_batch(settings, tokenizer)
    optimizer = torch.optim.Adam(model.parameters())
    return timed(lambda: model.losses(batch).total, optimizer, steps)


def of_wide(steps: int) -> tuple[float, float, float]:
    """Embeddings, a few layers and logits in bfloat16, like ``captioning augment teach``."""
    torch.manual_seed(0)
    words, size = 49_152, 48
    layers = [nn.Sequential(nn.Linear(size, size), nn.GELU()) for _ in range(12)]
    network = nn.Sequential(nn.Embedding(words, size), *layers, nn.Linear(size, words, bias=False))
    optimizer = torch.optim.Adam(network.parameters())

    def loss() -> Tensor:
        tokens = torch.randint(words, (24, int(torch.randint(8, 26, ()))))
        with torch.autocast("cpu", torch.bfloat16):
            logits = network(tokens)
        return functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())

    return timed(loss, optimizer, steps)


def timed(
    loss: Callable[[], Tensor], optimizer: torch.optim.Optimizer, steps: int
) -> tuple[float, float, float]:
    """Time the steps of a training, see `measured`."""

    def take(number: int) -> None:
        for _ in range(number):
            bench_updown.train_step(loss, optimizer)
            step_ended()

    take(2)
    before = resource.getrusage(resource.RUSAGE_SELF)
    take(steps)
    after = resource.getrusage(resource.RUSAGE_SELF)
    system = (after.ru_stime - before.ru_stime) / steps
    own = (after.ru_utime - before.ru_utime) / steps
    return own + system, system, after.ru_maxrss / 2**20


if __name__ == "__main__":
    main()
