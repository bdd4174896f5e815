"""Validation captions that are all the same."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import pytorch_lightning as pl
from pytorch_lightning.loggers import CSVLogger

from captioning.training.callbacks import ProgressBar, distinct_share
from captioning.types import Prediction


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
