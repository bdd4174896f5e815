"""Self-critical training from a finished run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from captioning.training import callbacks
from captioning.training.run import build_objective, train

POLICY = ("steps=[plant_swap20]", "curation=remove", "curation.select.ratio=0.1")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


def test_a_run_goes_on_with_rewards_and_resumes_to_the_bit(small, tmp_path, monkeypatch) -> None:
    train(small("num_epochs=1", folder="start"))
    start = f"start_from={tmp_path / 'start'}"
    critical = ("num_epochs=3", "objective=self_critical", "objective.num_samples=3")
    chosen = (*critical, *POLICY, start, "optimizer.lr=1e-3")
    train(small(*chosen, folder="complete"))

    original = callbacks.Speed.on_train_batch_end

    def interrupt(self, trainer, *args) -> None:
        if trainer.current_epoch == 1 and args[-1] == 1:
            raise KeyboardInterrupt
        original(self, trainer, *args)

    monkeypatch.setattr(callbacks.Speed, "on_train_batch_end", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(small(*chosen, folder="halves"))
    monkeypatch.undo()
    train(small(*chosen, folder="halves"))
    complete, halves = tmp_path / "complete", tmp_path / "halves"
    for name in ("curation.jsonl", "metrics.json", "predictions.json", "history.json"):
        assert (complete / name).read_bytes() == (halves / name).read_bytes(), name
    first, second = weights(complete), weights(halves)
    assert all(torch.equal(first[name], second[name]) for name in first)
    # curation sees the losses of the true captions
    assert len((complete / "curation.jsonl").read_text().splitlines()) > 1
    assert json.loads((complete / "metrics.json").read_text())["test"]["corpus"]["CIDEr-D"] >= 0


def test_captions_without_photos_are_refused(small) -> None:
    config = small("objective=self_critical")
    config.corpus = {"name": "lines", "train": {"_target_": "no.matter"}}
    with pytest.raises(ValueError, match="needs photos, and corpus=lines has none"):
        build_objective(config)
