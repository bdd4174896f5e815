"""Measure the cost of waiting OpenMP threads in a small training step, alone and on a busy CPU.

python benchmarks/bench_openmp.py [--busy 0 2] [--spins 300000 1000 0] [--steps 20] [--rounds 3]
    Steps of an LSTM with an output layer, as UpDown's, on all cores; busy programs multiply
    matrices on one core each. `--spins` are values of GOMP_SPINCOUNT, which threads of OpenMP wait
    at work before they sleep: 300000 is libgomp's own, 1000 this project's. Settings come in turns;
    a cell is the median of the rounds, seconds a step.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

import torch
from torch import nn

from captioning.runtime.cores import num_cores

BATCH, HIDDEN, VOCABULARY, WORDS = 64, 256, 4000, 12


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--busy", type=int, nargs="+", default=[0, num_cores()])
    parser.add_argument("--spins", nargs="+", default=["300000", "1000", "0"])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", action="store_true", help="time the steps here")
    parser.add_argument("--keep-busy", action="store_true", help="run as the busy program")
    options = parser.parse_args()
    if options.keep_busy:
        keep_busy()
    elif options.measure:
        print(seconds_of_a_step(options.steps))
    else:
        table(options)


def table(options: argparse.Namespace) -> None:
    print(f"{num_cores()} cores, torch {torch.__version__}, median of {options.rounds} rounds")
    print("busy programs | " + " | ".join(f"spin {spin}" for spin in options.spins))
    for number in options.busy:
        others = [start("--keep-busy", OMP_NUM_THREADS="1") for _ in range(number)]
        try:
            rounds = [
                [measured(spin, options.steps) for spin in options.spins]
                for _ in range(options.rounds)
            ]
        finally:
            for other in others:
                other.kill()
        medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
        print(f"{number} | " + " | ".join(f"{median:.3f}" for median in medians), flush=True)


def measured(spin: str, steps: int) -> float:
    done = start("--measure", "--steps", str(steps), GOMP_SPINCOUNT=spin)
    return float(done.communicate()[0])


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )


def keep_busy() -> None:
    matrix = torch.randn(500, 500)
    while True:
        torch.mm(matrix, matrix)


def seconds_of_a_step(steps: int) -> float:
    torch.manual_seed(0)
    cell, output = nn.LSTMCell(HIDDEN, HIDDEN), nn.Linear(HIDDEN, VOCABULARY)
    optimizer = torch.optim.Adam([*cell.parameters(), *output.parameters()])
    words = torch.randint(VOCABULARY, (WORDS, BATCH))
    inputs = torch.randn(WORDS, BATCH, HIDDEN)

    def step() -> None:
        hidden = memory = torch.zeros(BATCH, HIDDEN)
        loss = torch.zeros(())
        for word, given in zip(words, inputs, strict=True):
            hidden, memory = cell(given, (hidden, memory))
            loss = loss + nn.functional.cross_entropy(output(hidden), word)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    step()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - began) / steps


if __name__ == "__main__":
    main()
