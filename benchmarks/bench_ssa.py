"""Benchmark structured semantic augmentation on one core: captions per second, time by part.

python benchmarks/bench_ssa.py [--scenes 400]

Scenes of MiniWorld are drawn to a folder first. Times are processor seconds of this process, from
the captions' texts to the kept captions: parsing words, graphs, merging (smatch within), sampling,
saying and filtering.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from augmentation.ssa import merging, method
from augmentation.ssa.filters import CrossFittedScores, Rules
from augmentation.ssa.merging import Merging
from captioning.miniworld.dataset import read_miniworld
from captioning.text.parser import SpacyParser, build_caption_parser
from captioning.text.word_tables import build_token_table

seconds: dict[str, float] = {}


def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that its CPU seconds are summed under a name."""

    @wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        start = time.process_time()
        result = function(*args, **options)
        seconds[name] = seconds.get(name, 0.0) + time.process_time() - start
        return result

    return run


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenes", type=int, default=400)
    scenes = parser.parse_args(arguments).scenes
    SpacyParser.parse = timed("words and tags", SpacyParser.parse)
    method.read_words = timed("graphs", method.read_words)
    Merging.merge_all = timed("merging, smatch within", Merging.merge_all)
    merging.agreement = timed("smatch of all pairs", merging.agreement)
    CrossFittedScores.score = timed("well-formedness", CrossFittedScores.score)
    with tempfile.TemporaryDirectory() as folder:
        roster = read_miniworld(name="bench", folder=folder, split="train", num_scenes=scenes)
        ssa = method.Ssa(
            parser=build_caption_parser(num_processes=1), vectors=build_token_table(), rules=Rules()
        )
        start = time.process_time()
        num_captions = sum(len(of.captions) for of in ssa.captions(roster))
        total = time.process_time() - start
    print(f"{platform.processor() or platform.machine()}, one process")
    print(
        f"{scenes} photos, {len(roster)} captions read, "
        f"{num_captions} made in {total:.1f} s of processor"
    )
    print(f"{num_captions / total:.0f} new captions/s, {len(roster) / total:.0f} read/s")
    for name, spent in seconds.items():
        print(f"{100 * spent / total:5.1f}%  {name}")


if __name__ == "__main__":
    main()
