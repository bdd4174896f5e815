"""Benchmark the CPU time from the start of ``captioning caption PHOTO`` to its first caption.

python benchmarks/bench_first_caption.py PHOTO [--earlier CHECKOUT] [--rounds 3]
    This checkout and an earlier one in turns, each run a process of its own with one thread. A cell
    is the median of the rounds: user and system seconds, which other programs hardly change.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from captioning.results.versions import versions

HERE = Path(__file__).parents[1]


def seconds(checkout: Path, photo: Path) -> tuple[float, str]:
    """CPU seconds of one run, and its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(
        [sys.executable, "-m", "captioning", "caption", str(photo)],
        capture_output=True,
        text=True,
        check=True,
        cwd=checkout,  # from where `-m` imports first
        env={**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return taken, ended.stdout.strip()


def main() -> None:
    """Print the medians and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("photo", type=Path)
    parser.add_argument("--earlier", type=Path, metavar="CHECKOUT")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    photo = chosen.photo.resolve()
    checkouts = {"now": HERE} | ({"earlier": chosen.earlier.resolve()} if chosen.earlier else {})
    taken: dict[str, list[float]] = {name: [] for name in checkouts}
    said: set[str] = set()
    for _ in range(chosen.rounds):
        for name, checkout in checkouts.items():
            time, caption = seconds(checkout, photo)
            taken[name].append(time)
            said.add(caption)
    print({k: v for k, v in versions().items() if k in ("commit", "machine", "torch")})
    medians = {name: statistics.median(times) for name, times in taken.items()}
    for name, median in medians.items():
        print(f"{name}: {median:.2f} s ({', '.join(f'{time:.2f}' for time in taken[name])})")
    if "earlier" in medians:
        print(f"now / earlier: {medians['now'] / medians['earlier']:.2f}")
    if len(said) > 1:
        raise SystemExit(f"captions differ: {sorted(said)}")


if __name__ == "__main__":
    main()
