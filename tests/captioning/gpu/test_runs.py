"""Whole runs on a GPU, small: what a run folder holds, and what reads it elsewhere."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from PIL import Image

from captioning import Captioner
from captioning.config.compose import compose_config
from captioning.evaluation.predict import load_run, predict_run
from captioning.models.updown import UpDown
from captioning.results.run_folder import RunFolder
from tests.captioning.conftest import BLIP, SMALL
from tests.captioning.training.test_image_runs import same
from tests.run_calls import train

pytestmark = pytest.mark.filterwarnings(
    # Compiling uses what torch warns of.
    "ignore:The .grad attribute of a Tensor",
    "ignore:.torch.jit.script:DeprecationWarning",
    # The scale of a first step in half precision may be too large: that update is left out.
    "ignore:Detected call of .lr_scheduler.step",
)
REMOVE = ("curation=remove", "curation.select.ratio=0.1")
PIXELS = (
    "features=none",
    "features.backbone.name=test_resnet.r160_in1k",
    "features.backbone.weights=random",
    "features.backbone.image_size=64",
    "first_images=8",
)
UPDOWN = tuple(entry for entry in SMALL if entry.startswith("model"))


@pytest.fixture
def small(repository: Path, cache: Path, tmp_path: Path) -> Callable[..., DictConfig]:
    """A resolved config of a small run on the GPU, of a model of one's choice."""
    shared = [entry for entry in SMALL if not entry.startswith(("model", "trainer"))]

    def build(*overrides: str, model: tuple[str, ...] = UPDOWN, folder: str = "run") -> DictConfig:
        own = ("trainer.accelerator=gpu", f"paths.cache={cache}", f"run_dir={tmp_path / folder}")
        config = compose_config("train", [*shared, *model, *own, *overrides])
        OmegaConf.resolve(config)
        return config

    return build


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    names = [tmp_path / f"{number}.png" for number in range(5)]
    for name in names:
        Image.fromarray(rng.integers(0, 255, (60, 80, 3), dtype=np.uint8)).save(name)
    return names


def test_two_runs_end_in_the_same_bits(small, tmp_path: Path) -> None:
    for name in ("first", "second"):
        train(small("num_epochs=2", *REMOVE, folder=name))
    same(tmp_path / "first", tmp_path / "second")


def test_a_run_says_which_gpu_it_had_and_how_much_of_it(small, tmp_path: Path) -> None:
    train(small("num_epochs=1", "logger=csv", "trainer.log_every_n_steps=1"))
    folder = tmp_path / "run"
    assert torch.cuda.get_device_name() in (folder / "versions.json").read_text()
    [metrics] = folder.rglob("metrics.csv")
    with metrics.open(newline="") as file:
        peaks = [float(row["memory/gpu_peak_mib"] or 0) for row in csv.DictReader(file)]
    assert max(peaks) > 0


@pytest.mark.parametrize("model", [UPDOWN, BLIP], ids=["updown", "blip"])
def test_as_fast_as_it_goes(small, tmp_path: Path, model: tuple[str, ...]) -> None:
    train(small("speed=gpu", "num_epochs=2", *REMOVE, model=model))
    folder = RunFolder(tmp_path / "run")
    assert folder.config().trainer.precision == "bf16-mixed"
    assert len(json.loads((tmp_path / "run" / "predictions.json").read_text())) > 0


@pytest.mark.parametrize(
    "settings",
    [
        ("trainer.precision=bf16-true", "ema_decay=null"),
        ("trainer.precision=16-mixed",),
        ("+model.module.checkpointing=true",),
        ("speed.compile=true", "speed=gpu"),
    ],
    ids=["half", "scaled", "checkpointed", "compiled"],
)
def test_photos_train_blip(small, tmp_path: Path, settings: tuple[str, ...]) -> None:
    train(small(*PIXELS, "num_epochs=1", *settings, model=BLIP))
    weights = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert all(values.isfinite().all() for values in weights["state_dict"].values())


def test_a_run_of_a_gpu_captions_on_a_processor(small, tmp_path: Path, photos) -> None:
    train(small("num_epochs=1", "optimizer.lr=0.01"))
    written = {}
    for device in ("cuda", "cpu"):
        captioner = Captioner.load(tmp_path / "run", device=device)
        written[device] = [photo.caption for photo in captioner.caption(photos)]
    assert written["cuda"] == written["cpu"]


def test_a_full_gpu_is_told_in_one_line(small, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self, *_) -> None:
        torch.empty(2**45, device="cuda")

    monkeypatch.setattr(UpDown, "losses", full)
    advice = r"out of memory in training \(CUDA out of memory.*\): lower loader.batch_size=20"
    with pytest.raises(MemoryError, match=advice) as told:
        train(small("num_epochs=1"))
    assert "\n" not in str(told.value)


def test_a_run_is_evaluated_on_the_gpu(small, tmp_path: Path) -> None:
    train(small("num_epochs=1", "optimizer.lr=0.01"))
    assert load_run(tmp_path / "run").model.device.type == "cuda"
    written = {
        device: [group[0].caption for group in predict_run(tmp_path / "run", device=device)[0]]
        for device in ("cuda", "cpu")
    }
    assert written["cuda"] == written["cpu"]
