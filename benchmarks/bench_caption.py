"""Benchmark ``captioning caption``: CPU seconds for a photo, by part, and photos per second.

    python benchmarks/bench_caption.py PHOTO_FOLDER [--model FOLDER] [--photos 128] [--threads 1]

Without ``--model`` it is an UpDown of the small size with random weights and 5,000 words, whose
captions have all 20 words: longer than those of a trained one, so decoding takes more.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from captioning import Captioner
from captioning.config.compose import compose_config
from captioning.inference.building import CaptionerSettings, build_model
from captioning.inference.loading import LoadedCaptioner, _inputs
from captioning.inference.photo_batches import photo_samples
from captioning.results.versions import versions
from captioning.text.tokenizers.words import WordTokenizer

NUM_WORDS = 5_000


def random_captioner() -> Captioner:
    """Build a captioner with the size of a small UpDown on EfficientNet-Lite0's feature grid."""
    torch.manual_seed(0)
    words = " ".join(f"word{number}" for number in range(NUM_WORDS))
    config = compose_config("train", ["model=updown_small", "data=flickr8k"])
    OmegaConf.update(config, "seed", 0)
    settings = CaptionerSettings.of(config)
    inputs = _inputs(settings, torch.device("cpu"))
    tokenizer = WordTokenizer.build([words], min_count=1)
    model = build_model(settings, tokenizer, inputs.pictures).eval().requires_grad_(False)
    parts: dict[str, Any] = {"model": model, "config": config, "readers": inputs.readers}
    return Captioner(LoadedCaptioner(**parts, device=torch.device("cpu"), backbone=inputs.cached))


def main() -> None:
    """Print seconds per photo and photos per second."""
    parser = argparse.ArgumentParser(description="Benchmark of captioning photos.")
    parser.add_argument("folder", type=Path, help="folder of JPEG photos")
    parser.add_argument("--model", help="model; default: random weights")
    parser.add_argument("--photos", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--beam", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="number of torch threads")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    captioner = Captioner.load(chosen.model, device="cpu") if chosen.model else random_captioner()
    photos = sorted(chosen.folder.glob("*.jpg"))[: chosen.photos]
    print({k: v for k, v in versions().items() if k in ("commit", "machine", "torch")})
    settings = {"batch_size": chosen.batch_size, "beam_size": chosen.beam}
    captioner.caption(photos[: chosen.batch_size], **settings)  # warm

    with tempfile.TemporaryDirectory() as folder:
        samples, _ = photo_samples(photos, None, Path(folder))
        started = time.process_time()
        batches = list(captioner._read(samples, chosen.batch_size, skips=False))
        reading = time.process_time() - started
    search = captioner.model.search.changed(beam_size=chosen.beam)
    started = time.process_time()
    with torch.inference_mode():
        groups = [
            group
            for part in batches
            if part.batch is not None
            for group in captioner.model.candidates(part.batch, search=search)
        ]
    searching = time.process_time() - started
    words = sum(len(group[0].caption.split()) for group in groups) / len(groups)

    wall, used = time.perf_counter(), time.process_time()
    captioner.caption(photos, **settings)
    wall, used = time.perf_counter() - wall, time.process_time() - used
    number = len(photos)
    print(f"photos {number}, beam {chosen.beam}, words a caption {words:.1f}")
    print(f"processor ms a photo: decode and backbone {1000 * reading / number:.1f}")
    print(f"processor ms a photo: search {1000 * searching / number:.1f}")
    print(f"processor ms a photo: all {1000 * used / number:.1f}")
    print(f"photos/s: {number / wall:.1f}; with two free cores at most {2 * number / used:.1f}")


if __name__ == "__main__":
    main()
