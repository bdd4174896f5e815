"""The sweep of learning rates."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from omegaconf import OmegaConf

from captioning.config.compose import compose_config
from captioning.runtime import sample_dropout
from captioning.training.find_lr import (
    Sweep,
    _suggested,
    print_suggestion,
    running_mean,
    steepest,
)
from captioning.training.settings import FindLr
from captioning.training.speed import MixedBfloat
from tests.captioning.conftest import SMALL
from tests.run_calls import find_lr, train


@pytest.mark.long
def test_a_sweep_leaves_a_suggestion_and_no_weights(small, tmp_path: Path) -> None:
    config = small("+find_lr={lowest:1e-4,highest:10,num_updates:60}")
    suggestion = find_lr(config)
    assert 1e-4 < suggestion.rate < 1
    assert len(suggestion.losses) <= 60
    assert suggestion.losses[0] == pytest.approx(suggestion.smoothed[0])
    folder = tmp_path / "run"
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == [
        "curve.csv",
        "curve.pdf",
        "curve.png",
        "curve.svg",
        "suggestion.json",
    ]
    assert json.loads((folder / "find_lr" / "suggestion.json").read_text())["lr"] == suggestion.rate
    # the folder is free for the training, and the same sweep gives the same rate
    assert find_lr(config).losses == suggestion.losses
    train(small("num_epochs=1", f"optimizer.lr={suggestion.rate}"))


def test_a_sweep_keeps_a_loss_an_update_however_many_batches_it_has() -> None:
    sweep, trainer = Sweep(FindLr()), SimpleNamespace(global_step=0, should_stop=False)
    for updates, loss in ((0, 5.0), (0, 4.0), (1, 3.0), (1, 9.0), (2, 2.0)):
        trainer.global_step = updates
        outputs: Any = {"loss": torch.tensor(loss / 3), "update_loss": torch.tensor(loss)}
        sweep.on_train_batch_end(trainer, None, outputs, None, 0)
    assert sweep.losses == [3.0, 2.0]


def test_a_sweep_takes_the_settings_of_a_training(small, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, object] = {}

    def fit(trainer: pl.Trainer, model: pl.LightningModule, datamodule: object) -> None:
        seen["matmul"] = torch.get_float32_matmul_precision()
        seen["torch_dropout"] = sample_dropout._Current.torchs
        seen["plugin"] = trainer.precision_plugin
        raise InterruptedError

    monkeypatch.setattr(pl.Trainer, "fit", fit)
    try:
        with pytest.raises(InterruptedError):  # optimizer.fused=auto is settled
            find_lr(small("speed=gpu"))
        assert (seen["matmul"], seen["torch_dropout"]) == ("high", True)
        with pytest.raises(InterruptedError):
            find_lr(small("+optimizer.fused=true", "trainer.precision=bf16-mixed"))
        assert isinstance(seen["plugin"], MixedBfloat)
        with pytest.raises(ValueError, match="UpDown sums over many steps"):
            find_lr(small("trainer.precision=bf16-true", "ema_decay=null"))
    finally:
        torch.set_float32_matmul_precision("highest")
        sample_dropout.use_torchs(False)


@pytest.mark.long
def test_processes_find_one_rate(small, cache: Path, tmp_path: Path) -> None:
    sweep = "+find_lr={lowest:1e-4,highest:10,num_updates:30}"
    alone = find_lr(small(sweep, folder="alone"))
    two = ("trainer.devices=2", f"paths.cache={cache}", f"run_dir={tmp_path / 'two'}")
    program = [sys.executable, "-m", "tests.captioning.training.test_find_lr", str(tmp_path)]
    process = subprocess.run(
        [*program, *SMALL, sweep, *two], capture_output=True, text=True, timeout=600
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("optimizer.lr=") == 1
    results = sorted(tmp_path.glob("losses*.json"))
    first, second = (json.loads(result.read_text()) for result in results)
    assert first == second
    # High rates make much of small differences.
    assert first[:20] == pytest.approx(alone.losses[:20], rel=1e-3)


def test_the_steepest_fall_is_taken() -> None:
    rates = [10 ** (-6 + 0.1 * number) for number in range(60)]
    losses = [4 - 3 / (1 + math.exp(-4 * (math.log10(rate) + 3))) for rate in rates]
    losses[45:] = [losses[44] + 0.5 * n for n in range(15)]
    assert steepest(rates, losses) == pytest.approx(1e-3, rel=0.3)
    assert steepest(rates, [*losses[:50], *[math.nan] * 10]) == pytest.approx(1e-3, rel=0.3)
    assert steepest(rates, sorted(losses)) is None
    assert steepest(rates[:4], losses[:4]) is None


def test_the_running_mean_is_without_bias() -> None:
    assert running_mean([2.0] * 5) == pytest.approx([2.0] * 5)
    assert running_mean([1.0, 3.0])[1] == pytest.approx((0.9 * 1 + 3) / 1.9)


@pytest.mark.long
def test_a_sweep_that_is_none_is_refused(small, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"0 < lowest < highest .* got 1.0, 0.1 and 100"):
        FindLr(lowest=1.0, highest=0.1)
    with pytest.raises(ValueError, match=r"find_lr.num_updates: must be .* at least 20, got 3"):
        find_lr(small("+find_lr.num_updates=3"))
    with pytest.raises(ValueError, match=r"objective=likelihood, or set optimizer.lr by hand"):
        find_lr(small("objective=self_critical"))
    with pytest.raises(ValueError, match="made the loss fall; see"):
        _suggested(FindLr(), [float(number) for number in range(30)], tmp_path)
    assert (tmp_path / "curve.png").stat().st_size > 0


if __name__ == "__main__":  # one of several processes
    folder, *overrides = sys.argv[1:]
    config = compose_config("train", overrides)
    OmegaConf.resolve(config)
    found = find_lr(config)
    print_suggestion(found.rate, found.folder / "curve.png")
    name = f"losses{os.environ.get('LOCAL_RANK', 0)}.json"
    (Path(folder) / name).write_text(json.dumps(list(found.losses)))
