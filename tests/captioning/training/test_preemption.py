"""A run that is told to stop goes on with the next batch, and ends with the same bits."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch

from captioning.training import callbacks
from captioning.training.run import train
from captioning.training.signals import Stopped

SETTINGS = ("num_epochs=3", "steps=[plant_swap20]", "loader.batch_size=10")
FILES = ("metrics.json", "predictions.json", "history.json")
CURATION = (
    "curation.jsonl",
    "curation/epochs.json",
    "curation/losses.npz",
    "curation/detection.json",
    "curation/report.html",
)


def stop_at(monkeypatch, *places: tuple[int, int], number: int = signal.SIGTERM) -> None:
    """Send this process a signal in the step of an epoch and batch, once each."""
    original, left = callbacks.Speed.on_train_batch_end, list(places)

    def signalled(self, trainer: pl.Trainer, *args) -> None:
        if (trainer.current_epoch, args[-1]) in left:
            left.remove((trainer.current_epoch, args[-1]))
            os.kill(os.getpid(), number)
        original(self, trainer, *args)

    monkeypatch.setattr(callbacks.Speed, "on_train_batch_end", signalled)


def checkpoint(folder: Path, name: str = "last.ckpt") -> dict:
    return torch.load(folder / "checkpoints" / name, weights_only=True)


def assert_same(folder: Path, other: Path, *files: str) -> None:
    for name in (*FILES, *files):
        assert (folder / name).read_bytes() == (other / name).read_bytes(), name
    for name in ("last.ckpt", "best.ckpt"):
        first, second = checkpoint(folder, name), checkpoint(other, name)
        for key in ("state_dict", "current_model_state", "optimizer_states", "lr_schedulers"):
            torch.testing.assert_close(first.get(key), second.get(key), rtol=0, atol=0)
    assert not (other / "checkpoints/preempted.ckpt").exists()


CASES = {
    "first": ((0, 3),),
    "middle": ((1, 0),),
    "last": ((2, 8),),
    "twice in an epoch": ((1, 2), (1, 5)),
}


@pytest.mark.parametrize("policy", ["remove", "replace_caption"])
def test_a_stopped_run_ends_with_the_same_bits(policy, small, tmp_path: Path, monkeypatch) -> None:
    settings = (*SETTINGS, f"curation={policy}", "curation.select.ratio=0.1")
    train(small(*settings, folder="straight"))
    for name, places in CASES.items():
        folder = tmp_path / name.replace(" ", "_")
        config = small(*settings, folder=folder.name)
        stop_at(monkeypatch, *places)
        for epoch, batch in places:
            with pytest.raises(Stopped, match=r"preempted\.ckpt \(epoch") as stopped:
                train(config)
            assert stopped.value.status == 143
            saved = checkpoint(folder, "preempted.ckpt")
            assert (saved["epoch"], saved["global_step"]) == (epoch, 10 * epoch + batch + 1)
        monkeypatch.undo()
        train(config)
        assert_same(tmp_path / "straight", folder, *CURATION)
        assert len(json.loads((folder / "timing.json").read_text())["epochs"]) == 3
