"""The trainer of a run: which callbacks it has, in which order, and what users may set."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping, RichProgressBar

from captioning.training.settings import TrainSettings
from captioning.training.trainer import RESERVED, build_trainer, check_trainer, num_updates
from tests.run_calls import train

STOPPING = (
    "num_epochs=5",
    "callbacks=[early_stopping]",
    "callbacks.early_stopping.patience=1",
    "callbacks.early_stopping.min_delta=1000",
)


class Noisy(pl.Callback):
    """A user's own callback: draws from the global generator while steps begin."""

    def __init__(self, *, number: int) -> None:
        self.number = number


def names(trainer: pl.Trainer) -> list[str]:
    return [type(callback).__name__ for callback in trainer.callbacks]


def last(folder: Path) -> dict:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


@pytest.mark.parametrize("key", sorted(RESERVED))
def test_what_a_run_sets_itself_is_refused_with_what_to_set_instead(key: str) -> None:
    with pytest.raises(ValueError, match=f"trainer.{key} is set by the run: ") as refused:
        check_trainer({"accelerator": "cpu", key: None})
    assert RESERVED[key] in str(refused.value)


@pytest.mark.parametrize("number", [0, -1, 1.5, None, "auto"])
def test_a_wrong_number_of_batches_an_update_is_refused(number: object) -> None:
    with pytest.raises(ValueError, match="accumulate_grad_batches must be a whole number of at"):
        check_trainer({"accumulate_grad_batches": number})


def test_a_run_refuses_before_it_reads_anything(small, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"callbacks is set by the run: choose callbacks=\[early"):
        train(small("+trainer.callbacks=[]"))
    assert not (tmp_path / "run").exists()


def test_the_callbacks_of_a_config_stand_between_ours_and_the_checkpoints(small, tmp_path) -> None:
    class_path = f"{__name__}.{Noisy.__name__}"
    config = small(
        "callbacks=[early_stopping]", f"+callbacks.mine={{_target_: {class_path}, number: 3}}"
    )
    evaluation = pl.Callback()
    trainer = build_trainer(TrainSettings.of(config), tmp_path, evaluation=evaluation, truth={})
    assert trainer.callbacks[0] is evaluation
    assert names(trainer) == [
        "Callback",
        "Monitor",
        "SampleCaptions",
        "EndTogether",
        "StepSeed",
        "FiniteLoss",
        "GiveMemoryBack",
        "SayStepMemory",
        "Speed",
        "StayStopped",
        "StartScore",
        "ProgressBar",
        "WarmWeightAveraging",
        "EarlyStopping",
        "Noisy",
        "Preemption",
        "ModelCheckpoint",
        "ModelCheckpoint",
    ]
    assert trainer.callbacks[-4].number == 3
    stopping = next(c for c in trainer.callbacks if isinstance(c, EarlyStopping))
    assert (stopping.monitor, stopping.mode) == ("val/CIDEr-D", "max")


def test_there_is_one_progress_bar_or_none(small, tmp_path: Path) -> None:
    silent = small("trainer.enable_progress_bar=false")
    trainer = build_trainer(TrainSettings.of(silent), tmp_path, evaluation=pl.Callback(), truth={})
    assert "ProgressBar" not in names(trainer)
    target = "pytorch_lightning.callbacks.RichProgressBar"
    other = small(f"+callbacks.bar={{_target_: {target}, refresh_rate: 7}}")
    trainer = build_trainer(TrainSettings.of(other), tmp_path, evaluation=pl.Callback(), truth={})
    (bar,) = [c for c in trainer.callbacks if isinstance(c, RichProgressBar)]
    assert bar.refresh_rate == 7


def test_what_lightning_refuses_is_said_in_one_line(small, tmp_path: Path) -> None:
    config = small("callbacks=[learning_rate]", "num_epochs=1")
    with pytest.raises(ValueError, match="do not fit together: .*LearningRateMonitor.*no logger"):
        train(config)


def test_what_is_no_callback_is_refused(small, tmp_path: Path) -> None:
    config = small("+callbacks.mine={_target_: torch.nn.Identity}", "num_epochs=1")
    with pytest.raises(ValueError, match="mine: must build a pytorch_lightning.Callback, got Iden"):
        train(config)


def test_a_score_that_turns_out_not_to_be_logged_is_told_in_a_line(small, tmp_path: Path) -> None:
    monitor = "callbacks.early_stopping.monitor=train/nothing"
    config = small("callbacks=[early_stopping]", monitor, "num_epochs=1")
    with pytest.raises(ValueError, match=r"^callbacks\.\*\.monitor: .*`train/nothing`"):
        train(config)


@pytest.mark.long
def test_callbacks_of_the_config_log_and_change_nothing(small, trained, tmp_path: Path) -> None:
    trained("num_epochs=1", folder="plain")
    train(
        small(
            "num_epochs=1",
            "callbacks=[learning_rate,gradient_norm]",
            "logger=default",
            "trainer.log_every_n_steps=1",
            "trainer.enable_progress_bar=false",
            folder="watched",
        )
    )
    plain, watched = (last(tmp_path / name)["state_dict"] for name in ("plain", "watched"))
    assert all(torch.equal(plain[name], watched[name]) for name in plain)
    with (tmp_path / "watched" / "logs" / "csv" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    norms = [float(row["train/gradient_norm"]) for row in rows if row["train/gradient_norm"]]
    rates = [float(row["lr-Adam"]) for row in rows if row["lr-Adam"]]
    assert len(norms) == len(rates) == last(tmp_path / "watched")["global_step"]
    assert min(norms) > 0
    assert rates[0] > rates[-1] > 0


@pytest.mark.long
def test_a_run_that_stops_early_is_tested_and_stays_stopped(small, tmp_path: Path) -> None:
    scores = train(small(*STOPPING))
    run = tmp_path / "run"
    assert [entry["epoch"] for entry in json.loads((run / "history.json").read_text())] == [0, 1]
    assert "CIDEr-D" in scores
    before = last(run)
    # As if the run had been killed between its last epoch and its test.
    (run / "metrics.json").unlink()
    assert train(small(*STOPPING)) == scores
    assert len(json.loads((run / "history.json").read_text())) == 2
    assert last(run)["global_step"] == before["global_step"]
    quiet = small(*STOPPING, "trainer.enable_progress_bar=false")
    assert train(quiet) == scores, "a finished run is not trained again"


def test_the_state_of_early_stopping_is_resumed(small, tmp_path: Path, monkeypatch) -> None:
    original = EarlyStopping.on_train_epoch_end

    def interrupted(self, trainer, module) -> None:
        if trainer.current_epoch == 1:
            raise KeyboardInterrupt
        original(self, trainer, module)

    monkeypatch.setattr(EarlyStopping, "on_train_epoch_end", interrupted)
    with pytest.raises(KeyboardInterrupt, match="resume=auto"):
        train(small(*STOPPING))
    monkeypatch.undo()
    train(small(*STOPPING))
    history = json.loads((tmp_path / "run" / "history.json").read_text())
    assert [entry["epoch"] for entry in history] == [0, 1], "the best score of epoch 0 is known"


@pytest.mark.parametrize(("per_update", "updates"), [(1, 12), (2, 6), (3, 6), (4, 3), (9, 3)])
def test_updates_of_a_run(small, per_update: int, updates: int) -> None:
    config = small("num_epochs=3", f"trainer.accumulate_grad_batches={per_update}")
    assert num_updates(TrainSettings.of(config), 4) == updates


@pytest.mark.parametrize(
    ("limits", "updates"),
    [
        (["limit_train_batches=0.3"], 6),  # a share of the batches, rounded down
        (["limit_train_batches=3"], 9),
        (["limit_train_batches=1"], 3),  # a number: one batch
        (["limit_train_batches=1.0"], 24),  # a share: all of them
        (["limit_train_batches=50"], 24),
        (["limit_train_batches=null"], 24),
        (["limit_train_batches=3", "accumulate_grad_batches=2"], 6),
        (["max_steps=5"], 5),
        (["max_steps=500"], 24),
        (["max_steps=-1"], 24),
        (["limit_train_batches=3", "max_steps=5"], 5),
    ],
)
def test_updates_of_a_run_that_is_cut_short(small, limits: list[str], updates: int) -> None:
    config = small("num_epochs=3", *(f"++trainer.{limit}" for limit in limits))
    assert num_updates(TrainSettings.of(config), 8) == updates


def test_a_schedule_ends_with_the_last_update_of_limited_epochs(small, tmp_path) -> None:
    limits = ("+trainer.limit_train_batches=2", "+trainer.max_steps=3")
    train(small("num_epochs=2", "schedule=linear", *limits))
    checkpoint = last(tmp_path / "run")
    (schedule,) = checkpoint["lr_schedulers"]
    assert schedule["last_epoch"] == checkpoint["global_step"] == 3
    assert schedule["_last_lr"] == [0.0]


def test_a_schedule_ends_with_the_last_update_of_accumulated_batches(small, tmp_path) -> None:
    train(small("num_epochs=2", "trainer.accumulate_grad_batches=3", "schedule=linear"))
    checkpoint = last(tmp_path / "run")
    (schedule,) = checkpoint["lr_schedulers"]
    assert schedule["last_epoch"] == checkpoint["global_step"] == 4
    assert schedule["_last_lr"] == [0.0]
