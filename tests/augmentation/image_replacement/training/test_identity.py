"""What a training's checkpoint is held against: also the weights that it started from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from augmentation.training.identity import (
    refuse_other_training,
    training_identity,
)
from captioning.config.tasks import plain

CHECKPOINT = Path("last.ckpt")


@pytest.fixture
def start(tmp_path: Path) -> Path:
    folder = tmp_path / "start"
    (folder / "unet").mkdir(parents=True)
    (folder / "unet" / "model.safetensors").write_bytes(b"first")
    (folder / "card.json").write_text("{}", encoding="utf-8")
    return folder


def identity(config: Callable[..., DictConfig], start: Path | str | None) -> dict[str, Any]:
    value = "null" if start is None else start
    return training_identity(
        plain(config("diffusion", f"start={value}")), {}, starts={"start": start and str(start)}
    )


def test_other_weights_in_the_same_folder_are_another_training(
    config: Callable[..., DictConfig], start: Path
) -> None:
    before = identity(config, start)
    (start / "card.json").write_text("of another day", encoding="utf-8")
    (start / "last.ckpt").write_bytes(b"goes on")
    refuse_other_training(CHECKPOINT, before, identity(config, start))
    (start / "unet" / "model.safetensors").write_bytes(b"second")
    with pytest.raises(ValueError, match=r"starting weights\.start was \w{32}, is \w{32}\)"):
        refuse_other_training(CHECKPOINT, before, identity(config, start))


def test_the_users_own_models_are_read_by_name_and_those_of_the_hub_are_not(
    config: Callable[..., DictConfig], start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPTIONING_MODELS", str(start.parent))
    assert identity(config, "start")["starting weights"].keys() == {"start"}
    assert identity(config, f"start@{'0' * 40}")["starting weights"] == {}
    assert identity(config, None)["starting weights"] == {}


def test_a_checkpoint_that_tells_no_weights_goes_on(
    config: Callable[..., DictConfig], start: Path
) -> None:
    now = identity(config, start)
    kept = {key: value for key, value in now.items() if key != "starting weights"}
    refuse_other_training(CHECKPOINT, kept, now)
