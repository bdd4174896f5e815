"""What it costs to give freed memory back to the system: training steps of UpDown.

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

import bench_updown
import torch

from captioning.allocator import keep_freed_memory
from captioning.results.run_folder import versions
from captioning.text.tokenizers.words import WordTokenizer

SIZES = {"nocaps sizes": bench_updown.NOCAPS, "ruotianluo form": bench_updown.RUOTIANLUO}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", choices=("own", "kept"), help="steps in this process")
    options = parser.parse_args()
    if options.measure:
        if options.measure == "kept":
            keep_freed_memory()
        print(json.dumps(measured(options.steps)))
        return
    print(json.dumps(versions()))
    print("UpDown | glibc's own: s a step (of it the system's), GiB | memory kept | share")
    rounds = [
        {kind: start(kind, options.steps) for kind in ("own", "kept")}
        for _ in range(options.rounds)
    ]
    for name in SIZES:
        own, kept = (medians([turn[kind][name] for turn in rounds]) for kind in ("own", "kept"))
        cells = [f"{total:.2f} ({system:.2f}), {size:.2f}" for total, system, size in (own, kept)]
        print(f"{name} | {cells[0]} | {cells[1]} | {kept[0] / own[0]:.2f}", flush=True)


def medians(rounds: list[list[float]]) -> list[float]:
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def start(kind: str, steps: int) -> dict[str, list[float]]:
    command = [sys.executable, __file__, "--measure", kind, "--steps", str(steps)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def measured(steps: int) -> dict[str, tuple[float, float, float]]:
    """Processor seconds a step, those of the system, and the most memory so far in GiB."""
    torch.set_num_threads(1)
    return {name: of_form(settings, steps) for name, settings in SIZES.items()}


def of_form(settings: dict[str, int], steps: int) -> tuple[float, float, float]:
    tokenizer = WordTokenizer(words=[f"w{i}" for i in range(settings["vocabulary"] - 4)])
    model = bench_updown.build(settings, tokenizer)
    batch = bench_updown.make_batch(settings, tokenizer)
    optimizer = torch.optim.Adam(model.parameters())

    def take(number: int) -> None:
        for _ in range(number):
            bench_updown.train_step(lambda: model.losses(batch).total, optimizer)

    take(2)
    before = resource.getrusage(resource.RUSAGE_SELF)
    take(steps)
    after = resource.getrusage(resource.RUSAGE_SELF)
    system = (after.ru_stime - before.ru_stime) / steps
    own = (after.ru_utime - before.ru_utime) / steps
    return own + system, system, after.ru_maxrss / 2**20


if __name__ == "__main__":
    main()
