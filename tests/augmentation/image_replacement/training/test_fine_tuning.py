"""Fine-tuning of a tiny pipeline on disk: whole, by low-rank additions, and what is refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionPipeline
from omegaconf import DictConfig
from safetensors.torch import load_file
from tiny_pipeline import write_pipeline

from augmentation.image_replacement.generator import Job
from augmentation.image_replacement.pipeline_files import with_packaged
from augmentation.image_replacement.stable_diffusion import StableDiffusion
from augmentation.image_replacement.training import fine_tuning
from augmentation.image_replacement.training.fine_tuning import load_pipeline, train_generator
from tests.task_calls import call, is_record

SMALL = [
    "training.num_steps=6",
    "training.batch_size=2",
    "training.lr=0.01",
    "training.log_every=3",
    "training.val_every=3",
    "training.checkpoint_every=3",
    "val_batches=4",
    "lora.rank=2",
]
Made = Callable[..., DictConfig]


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pipeline(tmp_path_factory.mktemp("model") / "tiny")


def weights(folder: Path, part: str) -> dict[str, torch.Tensor]:
    name = "model" if part == "text_encoder" else "diffusion_pytorch_model"
    return load_file(folder / part / f"{name}.safetensors")


def changed(before: Path, after: Path, part: str) -> set[str]:
    old, new = weights(before, part), weights(after, part)
    assert old.keys() == new.keys()
    return {name for name in old if not torch.equal(old[name], new[name])}


def test_the_packaged_generator_is_found_from_any_folder(
    config: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline = load_pipeline(with_packaged(config("fine_tuning").generator))
    assert pipeline.unet.config.in_channels > 0


@pytest.mark.long
def test_all_weights_of_the_network_are_tuned(config: Made, pipeline: Path, tmp_path: Path) -> None:
    out = tmp_path / "tuned"
    chosen = config("fine_tuning", *SMALL, f"generator={pipeline}", "tuning=full", f"out={out}")
    card = call(train_generator, chosen)
    assert is_record(card["config"], chosen)
    assert card == json.loads((out / "card.json").read_text())
    assert [entry["step"] for entry in card["history"]] == [3, 6]
    assert card["history"][-1]["val loss"] < card["before"]["val loss"]
    assert changed(pipeline, out, "unet") == set(weights(pipeline, "unet"))
    assert changed(pipeline, out, "vae") == changed(pipeline, out, "text_encoder") == set()
    assert card["trained parameters"] == sum(v.numel() for v in weights(out, "unet").values())


@pytest.mark.long
def test_threads_read_the_photos_of_the_next_step(
    config: Made, pipeline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[bool] = []
    real = fine_tuning.load_square

    def load_square(path: Path, *, size: int) -> np.ndarray:
        readers.append(threading.current_thread() is threading.main_thread())
        return real(path, size=size)

    def load_pictures(paths: Sequence[Path], *, size: int) -> torch.Tensor:
        waits[-1] += 1
        return pictures(paths, size=size)

    pictures, waits = fine_tuning.load_pictures, []
    monkeypatch.setattr(fine_tuning, "load_square", load_square)
    monkeypatch.setattr(fine_tuning, "load_pictures", load_pictures)
    cards = []
    for name, ahead in (("ahead", True), ("at_once", False)):
        if not ahead:
            monkeypatch.setattr(fine_tuning.PhotoData, "read_ahead", lambda *_: None)
        waits.append(0)
        options = (*SMALL, f"generator={pipeline}", f"out={tmp_path / name}")
        cards.append(call(train_generator, config("fine_tuning", *options)))
    assert readers == [False] * 2 * 5  # two photos of each step but the first
    # three validations of four batches, and the first step; without threads all six steps
    assert waits == [12 + 1, 12 + 6]
    assert cards[0]["history"] == cards[1]["history"]
    assert cards[0]["before"] == cards[1]["before"]


def test_low_rank_additions_are_written_apart_and_merged(
    config: Made, pipeline: Path, tmp_path: Path
) -> None:
    out = tmp_path / "tuned"
    card = call(
        train_generator,
        config("fine_tuning", *SMALL, f"generator={pipeline}", "tuning=lora", f"out={out}"),
    )
    tuned = changed(pipeline, out, "unet")
    assert tuned
    assert all(".to_" in name for name in tuned)
    assert card["trained parameters"] == 2048
    jobs = [Job(prompt="a dog", seed=4)]
    settings = {"num_steps": 2, "batch_size": 1, "device": "cpu"}
    merged = StableDiffusion(model=str(out), **settings).generate(jobs)[0]
    added = StableDiffusion(model=str(pipeline), lora=str(out), **settings).generate(jobs)[0]
    plain = StableDiffusion(model=str(pipeline), **settings).generate(jobs)[0]
    assert np.allclose(merged, added, atol=1e-3)
    assert np.abs(merged - plain).max() > 0.01


@pytest.mark.long
def test_a_killed_run_goes_on_to_the_same_weights(
    config: Made, pipeline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(out: Path) -> Path:
        call(train_generator, config("fine_tuning", *SMALL, f"generator={pipeline}", f"out={out}"))
        return out

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    uninterrupted = run(tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(fine_tuning, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "killed")
    state = torch.load(tmp_path / "killed" / "last.ckpt", weights_only=True)
    assert state["step"] == 6
    assert changed(uninterrupted, run(tmp_path / "killed"), "unet") == set()


@pytest.mark.long
def test_the_text_encoder_is_tuned_when_asked(config: Made, pipeline: Path, tmp_path: Path) -> None:
    options = ["text_encoder=true", "gradient_checkpointing=true", "precision=bf16-mixed"]
    out = tmp_path / "tuned"
    call(
        train_generator,
        config("fine_tuning", *SMALL, *options, f"generator={pipeline}", f"out={out}"),
    )
    assert changed(pipeline, out, "text_encoder")
    assert StableDiffusionPipeline.from_pretrained(out).text_encoder.dtype == torch.float32


def test_what_cannot_be_tuned_is_refused(config: Made, pipeline: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="^tuning: must be one of full, lora, got half$"):
        call(train_generator, config("fine_tuning", f"generator={pipeline}", "tuning=half"))
    with pytest.raises(FileNotFoundError, match="no model_index.json in it; give a folder"):
        call(train_generator, config("fine_tuning", f"generator={tmp_path}"))
