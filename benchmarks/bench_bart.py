"""Benchmark beam search of a BART-base model against transformers, with the same weights.

    python benchmarks/bench_bart.py [--threads 2] [--rounds 3] [--images 8] [--memory 1 2 4 8 16]

Random weights of BART-base's shapes (d 768, 6 + 6 layers, 50,265 tokens) are written to a folder in
BART's format and read back by both sides. Each image is 36 input tokens; beam 5, 20 new tokens, the
end never produced, so that all steps are made. Both sides include the encoder. They take turns, and
the best time of each counts; they must return the same captions.

``--memory`` prints, for each number of images, by how much a process that searches once grew beyond
its size with the weights loaded (its highest resident set, MiB), a process a figure.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from bench_updown import matrix_peak
from transformers import BartConfig, BartForConditionalGeneration

from captioning.decoding.beam import BeamSearch
from captioning.decoding.settings import SearchRequest
from captioning.models.layers.bart_stepper import BartStepper
from captioning.results.versions import versions

BEAM, STEPS, INPUTS = 5, 20, 36
PUBLISHED_PEER = 3.3  # images a second of transformers, on two shared cores
BASE = {
    "d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
    "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
}  # fmt: skip


def write_weights(folder: Path) -> None:
    """Write random weights, large enough that words differ; the end token is never generated."""
    torch.manual_seed(0)
    bart = BartForConditionalGeneration(BartConfig(**BASE, forced_eos_token_id=None))
    with torch.no_grad():
        for parameter in bart.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3)
        bart.final_logits_bias[0, bart.config.eos_token_id] = -1e4
    bart.save_pretrained(folder)


def make_inputs(images: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(4, 50_000, (images, INPUTS), generator=generator)


def theirs(bart: BartForConditionalGeneration, inputs: torch.Tensor) -> list[list[int]]:
    """Beam search by transformers; the first token is the start token."""
    sequences = bart.generate(
        inputs,
        attention_mask=torch.ones_like(inputs),
        num_beams=BEAM,
        max_new_tokens=STEPS,
        length_penalty=1.0,
        early_stopping=False,
        do_sample=False,
    )
    return [row[1:] for row in sequences.tolist()]


def ours(bart: BartForConditionalGeneration, inputs: torch.Tensor) -> list[list[int]]:
    """Beam search by this framework with the stopping rule of transformers."""
    stepper, config = BartStepper(bart), bart.config
    images = bart.model.encoder(inputs, attention_mask=torch.ones_like(inputs)).last_hidden_state
    request = SearchRequest(
        num_images=len(inputs),
        bos_id=config.decoder_start_token_id,
        eos_id=config.eos_token_id,
        # Transformers may produce any token but the end; this one has no other use here.
        pad_id=config.eos_token_id,
    )
    sizes = {"beam_size": BEAM, "num_captions": BEAM, "max_length": STEPS}
    search = BeamSearch.with_settings(**sizes, length_penalty=1.0, exact=False)
    result = search(stepper, stepper.start(images), request)
    return result.tokens[:, 0].tolist()


SIDES: dict[str, Callable] = {"ours": ours, "transformers": theirs}


def multiply_adds(images: int) -> float:
    """Multiply-adds of this framework: encoder, image keys and values, and tokens of hypotheses."""
    d, ffn, layers = BASE["d_model"], BASE["decoder_ffn_dim"], BASE["decoder_layers"]
    encoder = layers * INPUTS * (4 * d * d + 2 * d * ffn + 2 * INPUTS * d)
    image = encoder + layers * INPUTS * 2 * d * d
    row = layers * (6 * d * d + 2 * d * ffn + 2 * INPUTS * d + BEAM * STEPS * d) + d * 50_265
    return images * (image + row * (1 + (STEPS - 1) * BEAM))


def measure(folder: Path, args: argparse.Namespace) -> dict:
    bart, inputs = load(folder), make_inputs(args.images)
    captions: dict[str, list[list[int]]] = {}
    best = dict.fromkeys(SIDES, float("inf"))
    peak = 0.0
    began, rounds = time.perf_counter(), 0
    while rounds < args.rounds and (not rounds or time.perf_counter() - began < args.seconds):
        for name, search in SIDES.items():
            search(bart, inputs[:1])  # warms up after the other side
            start = time.perf_counter()
            captions[name] = search(bart, inputs)
            best[name] = min(best[name], time.perf_counter() - start)
        peak = max(peak, matrix_peak(torch.float32))
        rounds += 1
    same = sum(map(list.__eq__, captions["ours"], captions["transformers"]))
    macs = multiply_adds(args.images)
    return {
        "what": "beam 5, BART-base's size, 20 tokens",
        "images": args.images,
        "rounds": rounds,
        **{f"{name}_per_s": round(args.images / best[name], 2) for name in SIDES},
        "times_transformers": round(best["transformers"] / best["ours"], 2),
        "published_peer_per_s": PUBLISHED_PEER,
        "same_captions": f"{same}/{args.images}",
        "giga_multiply_adds_per_image": round(macs / 1e9 / args.images, 2),
        "share_of_peak": round(macs / best["ours"] / peak, 2),
        "peak_giga_multiply_adds_per_s": round(peak / 1e9, 1),
    }


def load(folder: Path) -> BartForConditionalGeneration:
    return BartForConditionalGeneration.from_pretrained(folder).eval()


def grown(folder: Path, side: str, images: int) -> float:
    """Growth of this process in MiB during a search."""
    bart, inputs = load(folder), make_inputs(images)
    # Reading every weight once: some are mapped from the file until then.
    sum(parameter.sum() for parameter in bart.parameters())
    SIDES[side](bart, inputs[:1, :2])
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew (Linux)
    before = status_mib("VmRSS")
    SIDES[side](bart, inputs)
    return status_mib("VmHWM") - before


def status_mib(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def measure_memory(folder: Path, args: argparse.Namespace) -> None:
    for images in args.memory:
        row = {"what": "growth of the process, MiB", "images": images}
        for side in SIDES:
            command = [sys.executable, __file__, "--folder", str(folder)]
            command += ["--grow", side, "--images", str(images), "--threads", str(args.threads)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            row[side] = round(float(done.stdout.splitlines()[-1]), 1)
        print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=150, help="no new round after this")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--memory", type=int, nargs="*", default=[])
    parser.add_argument("--folder", type=Path, help="folder of weights from an earlier run")
    parser.add_argument("--grow", choices=sorted(SIDES), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with torch.inference_mode(), tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        if args.grow:
            print(grown(folder, args.grow, args.images))
            return
        if not (folder / "config.json").is_file():
            write_weights(folder)
        print(json.dumps({**versions(), "threads": args.threads}), flush=True)
        if args.rounds:
            print(json.dumps(measure(folder, args)), flush=True)
        measure_memory(folder, args)


if __name__ == "__main__":
    main()
