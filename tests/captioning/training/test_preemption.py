"""A run that is told to stop goes on with the next batch, and ends with the same bits."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from captioning.training import callbacks, preemption
from captioning.training.preemption import Preemption
from captioning.training.signals import Stopped, StopSignals
from tests.run_calls import train

# Ten batches an epoch.
SETTINGS = ("num_epochs=3", "steps=[plant_swap20]", "loader.batch_size=10")
REMOVE = (*SETTINGS, "curation=remove", "curation.select.ratio=0.1")
OTHER = (
    *(*SETTINGS, "curation=replace_caption", "curation.select.ratio=0.1"),
    *("curation/probe=rescore", "ema_decay=null", "loader.num_workers=1"),
    *("trainer.accumulate_grad_batches=3", "model.module.dropout=0.3"),
)
FILES = (
    *("metrics.json", "predictions.json", "history.json", "curation.jsonl"),
    *("curation/epochs.json", "curation/losses.npz", "curation/detection.json"),
    "curation/report.html",
)


def stop_at(monkeypatch, *places: tuple[int, int], number: int = signal.SIGTERM) -> None:
    """Send this process a signal in the step of an epoch and batch, once each."""
    original, left = callbacks.Speed.on_train_batch_end, list(places)

    def signalled(self, trainer: pl.Trainer, *args: Any) -> None:
        if (trainer.current_epoch, args[-1]) in left:
            left.remove((trainer.current_epoch, args[-1]))
            os.kill(os.getpid(), number)
        original(self, trainer, *args)

    monkeypatch.setattr(callbacks.Speed, "on_train_batch_end", signalled)


def stop_in(monkeypatch, hook: str, *, epoch: int) -> None:
    """Send this process SIGTERM in a hook of an epoch's validation, or of the test."""
    original = getattr(callbacks.CaptionEvaluation, hook)

    def signalled(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.current_epoch == epoch:
            os.kill(os.getpid(), signal.SIGTERM)
        original(self, trainer, module)

    monkeypatch.setattr(callbacks.CaptionEvaluation, hook, signalled)


def checkpoint(folder: Path, name: str = "last.ckpt") -> dict:
    return torch.load(folder / "checkpoints" / name, weights_only=True)


def assert_same(folder: Path, other: Path) -> None:
    for name in FILES:
        assert (folder / name).read_bytes() == (other / name).read_bytes(), name
    for name in ("last.ckpt", "best.ckpt"):
        first, second = checkpoint(folder, name), checkpoint(other, name)
        for key in ("state_dict", "current_model_state", "optimizer_states", "lr_schedulers"):
            torch.testing.assert_close(first.get(key), second.get(key), rtol=0, atol=0)
    assert not (other / "checkpoints/preempted.ckpt").exists()
    updates = [
        len(json.loads((run / "timing.json").read_text())["epochs"]) for run in (folder, other)
    ]
    assert updates[0] == updates[1]


def test_a_run_stopped_twice_ends_with_the_same_bits(small, trained, tmp_path, monkeypatch) -> None:
    trained(*REMOVE, folder="straight")
    config = small(*REMOVE, folder="stopped")
    places = ((0, 0), (1, 5))
    stop_at(monkeypatch, *places)
    for epoch, batch in places:
        with pytest.raises(Stopped, match=r"resumes from .*preempted\.ckpt") as stopped:
            train(config)
        assert stopped.value.status == 143
        saved = checkpoint(tmp_path / "stopped", "preempted.ckpt")
        assert (saved["epoch"], saved["global_step"]) == (epoch, 10 * epoch + batch + 1)
    train(config)
    assert_same(tmp_path / "straight", tmp_path / "stopped")


@pytest.mark.long
def test_it_does_so_with_accumulation_workers_and_a_second_pass(small, tmp_path, monkeypatch):
    train(small(*OTHER, folder="straight"))
    config = small(*OTHER, folder="stopped")
    stop_at(monkeypatch, (0, 3), (2, 5), number=signal.SIGUSR1)
    for epoch, updates in ((0, 2), (2, 10)):  # four updates an epoch: the third batch ends one
        with pytest.raises(Stopped) as stopped:
            train(config)
        assert stopped.value.status == 138
        saved = checkpoint(tmp_path / "stopped", "preempted.ckpt")
        assert (saved["epoch"], saved["global_step"]) == (epoch, updates)
    train(config)
    assert_same(tmp_path / "straight", tmp_path / "stopped")


@pytest.mark.long
def test_a_signal_at_an_epochs_end_waits_for_its_checkpoint(
    small, trained, tmp_path, monkeypatch
) -> None:
    trained(*REMOVE, folder="straight")
    config = small(*REMOVE, folder="stopped")
    with monkeypatch.context() as context:
        stop_at(context, (0, 9))
        with pytest.raises(Stopped, match=r"last\.ckpt \(epoch 0, 10 updates"):
            train(config)
    with monkeypatch.context() as context:
        stop_in(context, "on_validation_epoch_start", epoch=2)
        with pytest.raises(Stopped, match=r"last\.ckpt \(epoch 2, 30 updates"):
            train(config)
    assert not (tmp_path / "stopped/metrics.json").exists()
    with monkeypatch.context() as context:
        stop_in(context, "on_test_epoch_start", epoch=3)
        with pytest.raises(Stopped, match="before or after training"):
            train(config)
    train(config)
    assert_same(tmp_path / "straight", tmp_path / "stopped")


@pytest.mark.long
def test_a_machine_that_dies_without_a_signal_loses_minutes(
    small, trained, tmp_path, monkeypatch
) -> None:
    trained(*REMOVE, folder="straight")
    # Other ways of carrying a run out need no other folder.
    config = small(*REMOVE, "checkpoint_minutes=0.00001", folder="died")
    with monkeypatch.context() as context:
        original = callbacks.StepSeed.on_train_batch_start

        def die(self, trainer, module, batch, batch_idx) -> None:
            if (trainer.current_epoch, batch_idx) == (1, 6):
                raise SystemError("the power is gone")
            original(self, trainer, module, batch, batch_idx)

        context.setattr(callbacks.StepSeed, "on_train_batch_start", die)
        with pytest.raises(SystemError):
            train(config)
    assert checkpoint(tmp_path / "died", "preempted.ckpt")["global_step"] == 16
    train(small(*REMOVE, folder="died"))
    assert_same(tmp_path / "straight", tmp_path / "died")


@pytest.mark.long
def test_a_damaged_checkpoint_is_named_with_another(small, tmp_path, monkeypatch) -> None:
    config, folder = small(*REMOVE), tmp_path / "run/checkpoints"
    stop_at(monkeypatch, (1, 2), number=signal.SIGUSR2)
    with pytest.raises(Stopped):
        train(config)
    complete = (folder / "preempted.ckpt").read_bytes()
    (folder / "preempted.ckpt").write_bytes(complete[: len(complete) // 2])
    remedy = r"resume=.*(last|best)\.ckpt resumes from epoch 0"
    with pytest.raises(ValueError, match=rf"preempted\.ckpt is damaged .*{remedy}"):
        train(config)
    weight = complete.index(b"\0" * 64) - 64
    flipped = complete[:weight] + bytes([complete[weight] ^ 1]) + complete[weight + 1 :]
    (folder / "preempted.ckpt").write_bytes(flipped)
    with pytest.raises(ValueError, match=rf"preempted\.ckpt is damaged .*{remedy}"):
        train(config)
    (folder / "preempted.ckpt").write_bytes(complete)
    (folder / "last.ckpt").write_bytes(b"no checkpoint")
    with pytest.raises(ValueError, match=r"last\.ckpt is damaged .*preempted\.ckpt resumes from"):
        train(config)


@pytest.mark.long
def test_a_checkpoint_of_another_config_is_refused(small, tmp_path, monkeypatch) -> None:
    stop_at(monkeypatch, (0, 2), (0, 2))
    for name, seed in (("run", 0), ("other", 1)):
        with pytest.raises(Stopped):
            train(small(*REMOVE, f"seed={seed}", folder=name))
    place = "checkpoints/preempted.ckpt"
    (tmp_path / "other" / place).replace(tmp_path / "run" / place)
    with pytest.raises(
        ValueError, match=r"preempted\.ckpt belongs to another config \(seed: 1 -> 0"
    ):
        train(small(*REMOVE))


def trainer_of(world_size: int) -> Any:
    loop = SimpleNamespace(batch_idx=0, total_batch_idx=0)
    return SimpleNamespace(
        world_size=world_size,
        global_step=1,
        is_last_batch=False,
        val_check_batch=10,
        fit_loop=loop,
        saved=[],
        save_checkpoint=lambda path: None,
    )


def test_several_processes_act_on_what_they_agreed_on_two_steps_ago(tmp_path, monkeypatch) -> None:
    words = iter([0, 15, 15, 15])  # the largest of all processes
    own: list[int] = []

    def exchanged(trainer: Any, value: int) -> torch.Tensor:
        own.append(value)
        return torch.tensor([next(words)])

    monkeypatch.setattr(preemption, "_exchanged", exchanged)
    trainer, callback = trainer_of(2), Preemption(signals=StopSignals(), folder=tmp_path)
    stops, module = [], pl.LightningModule()
    for step in range(1, 5):
        trainer.global_step = step
        callback.on_train_batch_end(trainer, module, None, None, step - 1)
        stops.append(callback.stop)
    assert own == [0, 0, 0, 0]
    assert stops == [0, 0, 0, 15]


def test_no_checkpoint_between_a_batch_and_its_validation(tmp_path) -> None:
    trainer, signals, module = trainer_of(1), StopSignals(), pl.LightningModule()
    callback = Preemption(signals=signals, folder=tmp_path)
    signals.received, trainer.fit_loop.batch_idx = 15, 9
    callback.on_train_batch_end(trainer, module, None, None, 9)
    assert callback.stop == 0
    trainer.fit_loop.batch_idx, trainer.global_step = 10, 2
    callback.on_train_batch_end(trainer, module, None, None, 10)
    assert callback.stop == 15
