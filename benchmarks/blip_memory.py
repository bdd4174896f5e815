"""Measure the memory of BLIP's training steps and beam search, and the largest batch that fits.

python benchmarks/blip_memory.py [--batches 1 2 4] [--ways train train_checkpointed ...]
    [--largest GIB] [--device cpu] [--layers 12] [--hidden 768] [--side 384] [--captions 1]
    [--words 12] [--vocabulary 30524] [--threads N]

Every number is of a process of its own: on a GPU the most that torch has allocated, elsewhere
(Linux) the most by which the process has grown since before the model was built. Weights, gradients
and AdamW's moments are in it: of two training steps, or of captioning the images with a beam of 3.
``--largest`` doubles the batch until it needs more, or dies, then halves the interval.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import torch
from bench_bart import status_mib
from bench_blip import SIZES, build, make_batch, make_parser, seconds

from captioning.decoding.beam import BeamSearch
from captioning.results.versions import versions

# Settings of `train.py`: model.checkpointing=true, trainer.precision=bf16-mixed.
WAYS = {
    "train": {},
    "train_checkpointed": {"checkpointing": True},
    "train_bf16": {"bf16": True},
    "train_bf16_checkpointed": {"bf16": True, "checkpointing": True},
    "generate": {},
}


def peak_mib(options: argparse.Namespace, variant: str) -> float:
    """Peak memory of this process in MiB."""
    on_gpu = options.device.startswith("cuda")
    before = status_mib("VmRSS")
    run(options, variant)
    return torch.cuda.max_memory_allocated() / 2**20 if on_gpu else status_mib("VmHWM") - before


def run(options: argparse.Namespace, variant: str) -> None:
    """Run two training steps, or one search."""
    chosen = WAYS[variant]
    model, _ = build(options, checkpointing=chosen.get("checkpointing", False))
    model, batch = model.to(options.device), make_batch(options).to(options.device)
    if variant == "generate":
        search = BeamSearch.with_settings(beam_size=3, max_length=20, min_length=5)
        model.eval().candidates(batch, search=search)
        return
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    kind = torch.device(options.device).type
    for _ in range(2):  # the first one makes the moments
        with torch.autocast(kind, torch.bfloat16, enabled=chosen.get("bf16", False)):
            seconds(lambda: model.losses(batch).total, optimizer)


def measured(options: argparse.Namespace, variant: str, images: int) -> float | None:
    """`peak_mib` of a new process; None if the process dies."""
    command = [sys.executable, __file__, "--measure", variant, "--images", str(images)]
    for name in (*SIZES, "threads", "device"):
        command += [f"--{name}", str(getattr(options, name))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return round(float(done.stdout.splitlines()[-1]))
    last = (done.stderr.strip().splitlines() or ["killed"])[-1]
    if "memory" not in last.lower() and last != "killed":
        sys.exit(f"blip_memory: {variant} of {images} images: {last}")
    return None


def largest(options: argparse.Namespace, variant: str) -> dict[str, float | int | str]:
    """Largest batch that needs at most ``given.largest`` GiB."""
    fits, too_many, needs = 0, None, 0.0
    while too_many is None or too_many - fits > max(1, fits // 16):
        images = max(1, 2 * fits) if too_many is None else (fits + too_many) // 2
        peak = measured(options, variant, images)
        if peak is None or peak > 1024 * options.largest:
            too_many = images
        else:
            fits, needs = images, peak
    return {"way": variant, "limit_gib": options.largest, "largest_batch": fits, "mib": needs}


def main() -> None:
    """Print a JSON line for each implementation: memory by batch, or the largest batch."""
    parser = make_parser(__doc__, images=1)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--largest", type=float, metavar="GIB")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--measure", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.measure:
        print(peak_mib(options, options.measure))
        return
    if not Path("/proc/self/status").is_file() and options.device == "cpu":
        sys.exit("blip_memory: memory of a process is read from /proc, which Linux has alone")
    print(json.dumps(versions() | {"device": options.device}), flush=True)
    for variant in options.ways:
        if options.largest:
            print(json.dumps(largest(options, variant)), flush=True)
        else:
            by_batch = {
                str(images): measured(options, variant, images) for images in options.batches
            }
            print(json.dumps({"way": variant, "mib_by_batch": by_batch}), flush=True)


if __name__ == "__main__":
    main()
