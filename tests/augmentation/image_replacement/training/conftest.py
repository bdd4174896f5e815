"""A drawn world of a few scenes, and configs of the commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from captioning.config.compose import compose_config


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Overrides that choose eight training scenes and four others, 32 pixels wide."""
    sizes = ["data.train.num_scenes=8", "data.val.num_scenes=4", "data.train.size=32"]
    return ["data=miniworld", f"paths.cache={tmp_path_factory.mktemp('cache')}", *sizes]


@pytest.fixture
def config(repository: Path, world: list[str]) -> Callable[..., DictConfig]:
    """The config of a command by its name, on the small world, with further overrides."""

    def made(name: str, *overrides: str) -> DictConfig:
        return compose_config(name, [*world, "size=32", "threads=1", *overrides])

    return made
