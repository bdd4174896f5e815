"""Measure how long the end of an epoch waits for images, with and without generating ahead.

python benchmarks/bench_images_ahead.py [HYDRA_OVERRIDE ...] [--epochs 3] [--model FOLDER]
    Trains the config of train.py with REPLACEIMG twice, each time with an empty cache, and prints
    the seconds that each epoch's end waited for pictures, and those of its training. Without
    --model the pictures come from the small pipeline of this package.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from augmentation.image_replacement.generated import GeneratedImages
from captioning.config.compose import compose_config
from captioning.runtime.files import read_json
from captioning.training.preflight import settings_of
from captioning.training.run import train

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
SETTINGS = (
    "curation=replace_image",
    "curation.select.ratio=0.05",
    "curation.schedule.from_epoch=1",
    "logger=none",
    "metrics.test=[CIDEr-D]",
    "metrics.tokenizer=python",
)


def main() -> None:
    """Run the measurement that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--model", default="miniworld")
    arguments = parser.parse_args()
    overrides = [f"num_epochs={arguments.epochs}"]
    overrides.append(f"curation.image_source.generator.model={arguments.model}")
    print("| ahead | epoch | pictures | wait, s | training, s |")
    print("|---|---|---|---|---|")
    journals = []
    for ahead in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            config = _config(Path(folder), [*overrides, *arguments.overrides], ahead)
            waits = _timed(config)
            journals.append((Path(config.run_dir) / "curation.jsonl").read_text())
            _report(ahead, waits, Path(config.run_dir))
    same = "the same" if journals[0] == journals[1] else "DIFFERENT"
    print(f"\nThe journals of both runs are {same}.")


def _config(folder: Path, overrides: list[str], ahead: bool) -> DictConfig:
    places = (
        f"run_dir={folder / 'run'}",
        f"curation.image_source.cache.folder={folder / 'pictures'}",
        f"curation.image_source.ahead={str(ahead).lower()}",
    )
    config = compose_config("train", [*SETTINGS, *overrides, *places])
    OmegaConf.resolve(config)
    return config


def _timed(config: DictConfig) -> list[tuple[int, float]]:
    """Train, and return the images and seconds of every request for images."""
    waits: list[tuple[int, float]] = []
    original = GeneratedImages.images

    def timed(self, requests, *, seed):
        started = time.perf_counter()
        pictures = original(self, requests, seed=seed)
        waits.append((len(requests), time.perf_counter() - started))
        return pictures

    GeneratedImages.images = timed
    try:
        train(settings_of(config))
    finally:
        GeneratedImages.images = original
    return waits


def _report(ahead: bool, waits: list[tuple[int, float]], run: Path) -> None:
    records = read_json(run / "curation" / "epochs.json")
    acted = [record["epoch"] for record in records if record["num_selected"]]
    seconds = [entry["seconds"] for entry in read_json(run / "timing.json")["epochs"]]
    for epoch, (number, wait) in zip(acted, waits, strict=True):
        print(f"| {ahead} | {epoch} | {number} | {wait:.1f} | {seconds[epoch]:.1f} |")


if __name__ == "__main__":
    main()
