"""Benchmark REPLACEIMG's generator at the size of Stable Diffusion 1.5: images per second, memory.

python benchmarks/bench_stable_diffusion.py [--steps 50] [--device auto] [--size full|small]
    [--folder FOLDER]

Weights are random, and written once to ``--folder`` in diffusers' format (2 GB; a temporary one by
default); pictures are 512 pixels wide. A line of JSON for each setting of the generator: seconds
until it is loaded, pictures a second of one batch, GiB of the GPU. ``small`` is to try the script,
on a processor in float32.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel

from augmentation.image_replacement.generator import Job
from augmentation.image_replacement.stable_diffusion import StableDiffusion
from captioning.results.versions import versions
from captioning.runtime.devices import chosen_device

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.augmentation.image_replacement.tiny_pipeline import letters, pipeline_of

SETTINGS: tuple[dict[str, Any], ...] = (
    {"precision": "float16", "batch_size": 4},
    {"precision": "float16", "batch_size": 16},
    {"precision": "bfloat16", "batch_size": 16},
    {"precision": "float32", "batch_size": 4},
    {"precision": "float16", "batch_size": 4, "offload": "model"},
)
UNET = {"full": (320, 640, 1280, 1280), "small": (32, 32, 64, 64)}
VAE = {"full": (128, 256, 512, 512), "small": (32, 32, 32, 32)}


def write(folder: Path, size: str) -> None:
    """Write a half-precision pipeline."""
    torch.manual_seed(0)
    tokenizer = letters(folder / "words", max_tokens=77)
    text = CLIPTextConfig(
        vocab_size=49408,
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    unet = UNet2DConditionModel(
        sample_size=64,
        cross_attention_dim=768,
        attention_head_dim=8,
        block_out_channels=UNET[size],
    )
    vae = AutoencoderKL(
        block_out_channels=VAE[size],
        layers_per_block=2,
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        latent_channels=4,
        sample_size=512,
    )
    pipeline = pipeline_of(
        vae=vae, text_encoder=CLIPTextModel(text), tokenizer=tokenizer, unet=unet
    )
    pipeline.to(dtype=torch.float16).save_pretrained(folder / "pipeline", safe_serialization=True)


def measured(folder: Path, settings: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """One line of measurements, after a warm-up batch of three steps."""
    on_gpu = options.device.startswith("cuda")
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    generator = StableDiffusion(
        model=str(folder / "pipeline"), num_steps=3, device=options.device, **settings
    )
    generator.load()
    loaded = time.perf_counter() - begin
    jobs = [Job(prompt=f"a dog {seed}", seed=seed) for seed in range(settings["batch_size"])]
    generator.generate(jobs)
    generator.num_steps = options.steps
    begin = time.perf_counter()
    generator.generate(jobs)
    spent = time.perf_counter() - begin
    gib = torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None
    generator.release()
    return {
        **settings,
        "load_s": round(loaded, 1),
        "pictures_per_s": round(len(jobs) / spent, 2),
        "gib": gib and round(gib, 2),
    }


def main() -> None:
    """Print one line for each setting."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--size", choices=UNET, default="full")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    options.device = str(chosen_device(options.device))
    print(json.dumps({"steps": options.steps, **versions()}), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / "pipeline" / "model_index.json").is_file():
            write(folder, options.size)
        for settings in SETTINGS:
            if options.device.startswith("cuda") or settings["precision"] == "float32":
                print(json.dumps(measured(folder, settings, options)), flush=True)


if __name__ == "__main__":
    main()
