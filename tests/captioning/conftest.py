"""Whole runs, small: generated scenes, random backbone weights, few batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from captioning.config.compose import compose_config

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


@pytest.fixture
def small(repository: Path, cache: Path, tmp_path: Path) -> Callable[..., DictConfig]:
    """A resolved config of a small run; further overrides come last.

    Histograms, a third of its time, are drawn where ``plots`` is true.
    """

    def build(*overrides: str, folder: str = "run", plots: bool = False) -> DictConfig:
        own = (f"paths.cache={cache}", f"run_dir={tmp_path / folder}")
        config = compose_config("train", [*SMALL, *own, *overrides])
        if config.curation.get("callback"):
            config.curation.callback.plot = plots
        OmegaConf.resolve(config)
        return config

    return build
