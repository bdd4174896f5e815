"""Processes that make batches: the results do not depend on them, and validation keeps its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pytorch_lightning.callbacks import Callback

from captioning.data.batches import datamodule
from captioning.training import run as running
from tests.captioning.training.test_run import _stop_after
from tests.run_calls import train

PIXELS = (
    "features=none",
    "features.reader.train_transform.flip=true",
    "+features.reader.train_transform.distortions=2",
    "first_images=8",
    "num_epochs=2",
)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


def assert_same(folder: Path, other: Path) -> None:
    first, second = weights(folder), weights(other)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(autouse=True)
def two_loader_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """``auto`` is 2, whatever machine this is."""
    monkeypatch.setattr(datamodule, "num_cores", lambda: 3)


class WorkerIds(Callback):
    """Keeps the ids of the processes of each validation, and whether batches came from them."""

    def __init__(self) -> None:
        self.of_epochs: list[tuple[int, ...]] = []
        self.dtypes: set[torch.dtype] = set()

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, *_) -> None:
        self.dtypes.add(batch.images.dtype)

    def on_validation_end(self, trainer, pl_module) -> None:
        processes = trainer.val_dataloaders._iterator._workers
        self.of_epochs.append(tuple(process.pid for process in processes))


@pytest.mark.long
def test_results_are_the_same_with_any_number_of_processes(small, tmp_path, monkeypatch) -> None:
    watcher, build_trainer = WorkerIds(), running.build_trainer

    def watched(*args, **kwargs):
        trainer = build_trainer(*args, **kwargs)
        trainer.callbacks.append(watcher)
        return trainer

    train(small(*PIXELS, "loader.num_workers=0", folder="none"))
    monkeypatch.setattr(running, "build_trainer", watched)
    train(small(*PIXELS, folder="auto"))
    assert_same(tmp_path / "none", tmp_path / "auto")
    first, second = watcher.of_epochs
    assert len(first) == 2
    assert first == second
    assert watcher.dtypes == {torch.uint8}


@pytest.mark.long
def test_a_run_goes_on_with_another_number_of_processes(small, tmp_path, monkeypatch) -> None:
    train(small(*PIXELS, "loader.num_workers=0", folder="whole"))
    with monkeypatch.context() as patched:
        _stop_after(patched, epochs=1)
        with pytest.raises(KeyboardInterrupt):
            train(small(*PIXELS, "loader.num_workers=0", folder="halves"))
    train(small(*PIXELS, "loader.num_workers=1", "loader.prefetch_factor=1", folder="halves"))
    assert_same(tmp_path / "whole", tmp_path / "halves")


@pytest.mark.parametrize(
    ("cores", "processes", "number"), [(1, 1, 0), (2, 1, 1), (64, 1, 8), (64, 8, 7), (8, 8, 0)]
)
def test_auto_leaves_a_core_to_each_training_process(
    cores: int, processes: int, number: int, monkeypatch
) -> None:
    monkeypatch.setattr(datamodule, "num_cores", lambda: cores)
    assert datamodule.auto_workers(processes) == number
