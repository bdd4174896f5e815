"""Callbacks of a run, each by itself."""

from __future__ import annotations

import json
import logging
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks.early_stopping import EarlyStoppingReason
from pytorch_lightning.loggers import CSVLogger

from captioning.data.roster import build_roster
from captioning.metrics.coco import MetricResult
from captioning.training import callbacks
from captioning.training.callbacks import (
    ProgressBar,
    Speed,
    StartScore,
    StayStopped,
    StepSeed,
    distinct_share,
    write_scores,
)
from captioning.types import Prediction, Sample
from tests.tiny import make_batch


def captioned(number: int, different: int) -> list[Prediction]:
    return [Prediction(image_id=str(n), caption=f"a man is {n % different}") for n in range(number)]


def test_captions_that_collapse_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert distinct_share(captioned(100, 4), epoch=3) == 0.04
    assert "epoch 3: 100 validation images got 4 different captions" in caplog.text
    assert "'a man is 0'" in caplog.text


@pytest.mark.parametrize(("number", "different"), [(100, 5), (19, 1), (1, 1)])
def test_some_captions_may_be_the_same(number: int, different: int, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        assert distinct_share(captioned(number, different), epoch=0) == different / number
    assert caplog.text == ""


def test_progress_bar_shows_no_name_of_a_loggers_folder(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, name="logs", version="tensorboard")
    trainer = pl.Trainer(logger=logger, accelerator="cpu", enable_progress_bar=False)
    assert ProgressBar().get_metrics(trainer, pl.LightningModule()) == {}


@pytest.mark.parametrize("transient", [True, False])
@pytest.mark.parametrize("stage", ["train", "test"])
def test_a_transient_bar_is_erased_at_its_end(stage: str, transient: bool) -> None:
    bar, trainer = ProgressBar(transient=transient), pl.Trainer(logger=False, accelerator="cpu")
    getattr(bar, f"on_{stage}_start")(trainer, pl.LightningModule())
    assert bar.progress is not None
    assert bar.progress.live.transient is transient
    bar.progress.stop()


@pytest.mark.parametrize(
    ("reasons", "stays_stopped"),
    [
        ((), False),
        ((EarlyStoppingReason.NOT_STOPPED,), False),
        ((EarlyStoppingReason.NOT_STOPPED, EarlyStoppingReason.PATIENCE_EXHAUSTED), True),
    ],
)
def test_a_run_that_early_stopping_has_ended_is_not_trained_on(reasons, stays_stopped) -> None:
    stoppers = [SimpleNamespace(stopping_reason=reason) for reason in reasons]
    trainer: Any = SimpleNamespace(early_stopping_callbacks=stoppers, should_stop=False)
    StayStopped().on_train_start(trainer, pl.LightningModule())
    assert trainer.should_stop is stays_stopped


def test_each_step_of_each_epoch_has_random_numbers_of_its_own() -> None:
    def drawn(seed: int, epoch: int, batch: int) -> float:
        trainer: Any = SimpleNamespace(current_epoch=epoch, global_rank=0)
        StepSeed(seed=seed).on_train_batch_start(trainer, pl.LightningModule(), None, batch)
        return float(torch.rand(()))

    with torch.random.fork_rng(devices=[]):
        steps = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1), (0, 0, 0)]
        numbers = [drawn(*step) for step in steps]
    assert numbers[0] == numbers[-1]
    assert len(set(numbers)) == 5


def test_scores_of_the_test_leave_those_of_other_splits(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps({"val": {"corpus": {"BLEU-4": 0.1}}, "test": {"corpus": {}}}))
    result = MetricResult(corpus={"BLEU-4": 0.5}, per_image={}, settings={})
    history = [{"epoch": 0, "CIDEr-D": 0.2, "samples": {"1": "a dog"}}]
    write_scores(tmp_path, result, history)
    content = json.loads(path.read_text())
    assert content["val"]["corpus"] == {"BLEU-4": 0.1}
    assert content["test"]["corpus"] == {"BLEU-4": 0.5}
    assert content["val_history"] == [{"epoch": 0, "CIDEr-D": 0.2}]


def test_the_score_at_the_start_leaves_random_numbers_and_modes_as_they_were(
    tmp_path: Path,
) -> None:
    """Of a search that draws at random, and a model some parts of which do not train."""
    module: Any = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(1, 1).eval())
    module.device = torch.device("cpu")
    modes: list[bool] = []

    def validation_step(batch: Any, number: int) -> list[Prediction]:
        draws = (torch.rand(1).item(), np.random.rand(), random.random())  # noqa: NPY002
        modes.append(module[0].training or torch.is_grad_enabled() or draws == ())
        return [Prediction(image_id="1", caption="a dog runs")]

    path, caption = Path("1.jpg"), "a dog runs fast"
    sample = Sample(row=0, sample_id="1#0", image_id="1", image_path=path, caption=caption)
    loader = [SimpleNamespace(to=lambda _: None)]
    datamodule = SimpleNamespace(
        val_dataloader=lambda: loader, val=build_roster("small/val", [sample])
    )
    trainer: Any = SimpleNamespace(global_step=0, current_epoch=0, loggers=[], is_global_zero=True)
    trainer.datamodule = datamodule
    trainer.strategy = SimpleNamespace(validation_step=validation_step)
    callback = StartScore(folder=tmp_path, name="base", metrics=["ROUGE-L"])
    np.random.seed(3)  # noqa: NPY002
    states = (torch.get_rng_state(), random.getstate())
    trainer.limit_val_batches = 0
    callback.on_train_start(trainer, module)
    assert not (tmp_path / "start.json").exists()
    trainer.limit_val_batches = 1.0
    callback.on_train_start(trainer, module)
    assert json.loads((tmp_path / "start.json").read_text())["scores"]["ROUGE-L"] > 0.5
    assert modes == [False]
    assert [part.training for part in module] == [True, False]
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.rand() == np.random.RandomState(3).rand()  # noqa: NPY002
    assert random.getstate() == states[1]


def test_speed_is_captions_of_all_processes_by_the_seconds_of_training(tmp_path: Path) -> None:
    """With a clock that is set by hand; a filler counts no captions."""
    speed, logged = Speed(folder=tmp_path), {}
    trainer: Any = SimpleNamespace(
        strategy=SimpleNamespace(reduce=lambda captions, reduce_op: 2 * captions),
        global_step=3,
        is_global_zero=True,
    )
    module: Any = SimpleNamespace(device="cpu", log=logged.__setitem__)
    batch = make_batch()
    with pytest.MonkeyPatch.context() as patch:
        clock = iter((10.0, 10.25, 10.5))
        patch.setattr(callbacks.time, "perf_counter", lambda: next(clock))
        speed.on_train_batch_start(trainer, module, batch, 0)
        speed.on_train_batch_end(trainer, module, None, batch, 0)
        speed.on_train_batch_end(trainer, module, None, replace(batch, filler=True), 1)
    speed.on_train_epoch_end(trainer, module)
    [epoch] = json.loads((tmp_path / "timing.json").read_text())["epochs"]
    assert epoch == {"seconds": 0.5, "captions_per_second": 2 * len(batch) / 0.5, "updates": 3}
    assert logged == {"speed/captions_per_second": epoch["captions_per_second"]}
