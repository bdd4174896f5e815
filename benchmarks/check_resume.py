"""Kill a training run at random moments and compare its final results with an unkilled run.

    python benchmarks/check_resume.py --kills 20 [--seed 0] [OVERRIDE ...]

The run is started, killed (SIGKILL, with all it started) after a random time, started again, and so
on; after the last kill it may end. Weights, journal, scores and captions must then be those of a
run that was never disturbed, bit for bit.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

import torch

ROOT = Path(__file__).resolve().parents[1]
FILES = ("curation.jsonl", "metrics.json", "predictions.json", "history.json", "noise_truth.json")
DEFAULTS = [
    "data=miniworld_tiny",
    "model=updown_tiny",
    "steps=[plant_swap20]",
    "curation=replace_caption",
    "curation.select.ratio=0.05",
    "num_epochs=8",
    "metrics.test=[BLEU,ROUGE-L,CIDEr-D]",
    "metrics.tokenizer=python",
    "threads=1",
    "logger=none",
    "loader.batch_size=30",
]


def start(folder: Path, overrides: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(ROOT / "train.py"), *overrides, f"run_dir={folder}"]
    log = (folder.parent / f"{folder.name}.log").open("ab")
    return subprocess.Popen(
        command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )


def fail(folder: Path) -> NoReturn:
    """Exit with the last lines of a run's output, because its file is temporary."""
    lines = (folder.parent / f"{folder.name}.log").read_text(encoding="utf-8").splitlines()
    sys.exit("\n".join(["the run failed:", *lines[-20:]]))


def run_to_end(folder: Path, overrides: list[str]) -> float:
    began = time.monotonic()
    if start(folder, overrides).wait() != 0:
        fail(folder)
    return time.monotonic() - began


def run_with_kills(
    scratch: Path, overrides: list[str], kills: int, longest: float, seed: int
) -> list[Path]:
    """Start a run and kill it until ``kills`` kills have hit a live process.

    Returns:
        The folders of the finished runs; when one ends before it is killed, the next begins.
    """
    rng, struck, folders = random.Random(seed), 0, [scratch / "killed0"]
    while struck < kills:
        process = start(folders[-1], overrides)
        try:
            if process.wait(timeout=rng.uniform(0.1, 0.45) * longest) != 0:
                fail(folders[-1])
            folders.append(scratch / f"killed{len(folders)}")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            struck += 1
            epochs = len(list((folders[-1] / "curation").glob("epoch_*.png")))
            print(f"kill {struck}: {epochs} epochs had ended", flush=True)
    run_to_end(folders[-1], overrides)
    return folders


def differences(first_folder: Path, second_folder: Path) -> list[str]:
    """Names of files that are not bit-identical in two finished runs."""
    different = [
        n for n in FILES if (first_folder / n).read_bytes() != (second_folder / n).read_bytes()
    ]
    for name in ("last.ckpt", "best.ckpt"):
        first, second = (
            torch.load(folder / "checkpoints" / name, weights_only=True)["state_dict"]
            for folder in (first_folder, second_folder)
        )
        if first.keys() != second.keys():
            different.append(f"{name}: keys")
        different += [f"{name}: {key}" for key in first if not torch.equal(first[key], second[key])]
    return different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("overrides", nargs="*")
    args = parser.parse_args()
    overrides = [*DEFAULTS, *args.overrides]
    with tempfile.TemporaryDirectory() as scratch:
        calm = Path(scratch) / "calm"
        seconds = run_to_end(calm, overrides)
        print(f"undisturbed: {seconds:.0f} s", flush=True)
        folders = run_with_kills(Path(scratch), overrides, args.kills, seconds, args.seed)
        wrong = [name for folder in folders for name in differences(calm, folder)]
    print(f"{args.kills} kills over {len(folders)} runs; differing: {wrong or 'nothing'}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
