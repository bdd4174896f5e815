"""Whole runs, small: generated scenes, random backbone weights, few batches."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from captioning.config.compose import compose_config
from tests.run_calls import train

SMALL = (
    "data=miniworld_tiny",
    "model=updown_tiny",
    "model.module.hidden_size=24",
    "model.module.projection_size=16",
    "features.backbone.name=test_resnet.r160_in1k",
    "features.backbone.weights=random",
    "features.backbone.image_size=64",
    "first_images=20",
    "tokenizer.min_count=1",
    "loader.batch_size=20",
    "search.beam_size=2",
    "search.max_length=8",
    "metrics.test=[BLEU,CIDEr-D]",
    "metrics.tokenizer=python",
    "logger=none",
    "trainer.accelerator=cpu",
)
BLIP = (
    "model=blip_small",
    "model.module.hidden_size=32",
    "model.module.num_layers=2",
    "model.module.num_heads=2",
    "model.module.intermediate_size=64",
)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache of scenes and features for all runs."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def small_settings() -> tuple[str, ...]:
    """Overrides of a small run, but for the model's sizes."""
    return tuple(entry for entry in SMALL if not entry.startswith("model"))


def small_config(
    cache: Path, run_dir: Path, overrides: Sequence[str], *, plots: bool = False
) -> DictConfig:
    """A resolved config of a small run; histograms take a third of its time."""
    own = (f"paths.cache={cache}", f"run_dir={run_dir}")
    config = compose_config("train", [*SMALL, *own, *overrides])
    if config.curation.get("callback"):
        config.curation.callback.plot = plots
    OmegaConf.resolve(config)
    return config


@pytest.fixture
def small(cache: Path, tmp_path: Path) -> Callable[..., DictConfig]:
    """A resolved config of a small run; further overrides come last."""

    def build(*overrides: str, folder: str = "run", plots: bool = False) -> DictConfig:
        return small_config(cache, tmp_path / folder, overrides, plots=plots)

    return build


@pytest.fixture(scope="session")
def trained_once(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Trains a small run once a session for the same overrides; its folder must not be changed."""
    root = tmp_path_factory.mktemp("trained")

    @functools.cache
    def run(*overrides: str) -> Path:
        folder = root / str(len(list(root.iterdir()))) / "run"
        train(small_config(cache, folder, overrides))
        return folder

    return run


@pytest.fixture
def trained(trained_once: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """A copy of a small run's folder, for tests of what comes after a training."""

    def copy(*overrides: str, folder: str = "run") -> Path:
        return shutil.copytree(trained_once(*overrides), tmp_path / folder)

    return copy
