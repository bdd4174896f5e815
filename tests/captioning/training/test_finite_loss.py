"""A loss that is not finite stops the run, also where the device answers late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from captioning.training.finite_loss import FiniteLoss, HostCopy

IDS = ("a", "b", "c")


def trainer(step: int, *, is_last: bool = False) -> Any:
    return SimpleNamespace(current_epoch=2, global_step=step, is_last_batch=is_last)


def take_step(callback: FiniteLoss, step: int, values: list[float], **options: bool) -> None:
    per_sample = torch.tensor(values)
    outputs = {"loss": per_sample.mean(), "per_sample": per_sample}
    batch = SimpleNamespace(sample_ids=IDS)
    callback.on_train_batch_end(trainer(step, **options), None, outputs, batch, step)


@pytest.fixture
def slow_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing ever arrives unless it is waited for."""
    monkeypatch.setattr(HostCopy, "has_arrived", lambda self: False)


def test_the_step_and_its_captions_are_named() -> None:
    callback = FiniteLoss()
    take_step(callback, 7, [1.0, 2.0, 3.0])
    expected = r"loss is nan at epoch 2, step 8 \(2 captions, such as \['b', 'c'\]\)"
    with pytest.raises(ValueError, match=expected):
        take_step(callback, 8, [1.0, float("nan"), float("inf")])


def test_the_first_bad_step_is_named_though_its_loss_comes_late(slow_device) -> None:
    callback = FiniteLoss()
    for step, value in enumerate([1.0, float("inf"), float("nan"), 1.0]):
        take_step(callback, step, [1.0, 1.0, value])
    with pytest.raises(ValueError, match=r"loss is inf at epoch 2, step 1 \(1 captions"):
        take_step(callback, 4, [1.0, 1.0, 1.0], is_last=True)


@pytest.mark.parametrize(
    "hook", ["on_save_checkpoint", "on_validation_start", "on_train_epoch_end"]
)
def test_nothing_is_saved_or_validated_after_a_bad_step(slow_device, hook: str) -> None:
    callback = FiniteLoss()
    take_step(callback, 0, [float("nan"), 1.0, 1.0])
    arguments = (trainer(1), None, {}) if hook == "on_save_checkpoint" else (trainer(1), None)
    with pytest.raises(ValueError, match="step 0"):
        getattr(callback, hook)(*arguments)
