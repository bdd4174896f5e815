"""Self-critical training from a finished run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from captioning.training import callbacks
from captioning.training.run import build_objective
from captioning.training.settings import TrainSettings
from tests.run_calls import train

CRITICAL = ("objective=self_critical", "objective.num_samples=3", "optimizer.lr=1e-3")
CRITICAL += ("steps=[plant_swap20]", "curation=remove", "curation.select.ratio=0.1")
GROUPED = ("objective=grpo", "objective.num_updates=2", "curation/score=reward")
GROUPED += ("curation.score.of=gap",)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


@pytest.mark.long
def test_a_run_goes_on_with_rewards(small, trained, tmp_path: Path) -> None:
    start = trained("num_epochs=1", folder="start")
    scores = train(small(*CRITICAL, "num_epochs=1", f"start_from={start}"))
    before, after = weights(start), weights(tmp_path / "run")
    assert any(not torch.equal(before[name], after[name]) for name in before)
    # curation sees the losses of the true captions
    assert len((tmp_path / "run" / "curation.jsonl").read_text().splitlines()) > 1
    assert scores["CIDEr-D"] >= 0


@pytest.mark.long
@pytest.mark.parametrize("grouped", [(), GROUPED], ids=["self_critical", "grpo"])
def test_a_run_with_rewards_resumes_to_the_bit(
    grouped, small, trained, tmp_path, monkeypatch
) -> None:
    start = trained("num_epochs=1", folder="start")
    chosen = (*CRITICAL, *grouped, "num_epochs=3", f"start_from={start}")
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


def test_captions_without_photos_are_refused(small) -> None:
    config = small("objective=self_critical")
    config.corpus = {"name": "lines", "train": {"_target_": "no.matter"}}
    with pytest.raises(ValueError, match="needs photos, and corpus=lines has none"):
        build_objective(TrainSettings.of(config))
