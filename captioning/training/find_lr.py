"""Find a learning rate by a short sweep: ``captioning find-lr``.

The rate rises by a constant factor per update (Smith, "Cyclical learning rates", WACV 2017). The
suggested rate is where the smoothed loss falls most steeply over the logarithm of the rate. The
model is new, or comes from ``start_from``, and is discarded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities import rank_zero_only

from captioning.config.build import build_part
from captioning.results.figures import BLUE, GREY, VERMILION, figure_style, new_figure, save_figure
from captioning.runtime.files import write_json, write_lines
from captioning.training.callbacks import StepSeed
from captioning.training.inputs import load_inputs
from captioning.training.preflight import check_run
from captioning.training.run import build_captioner, set_up, suit_machine
from captioning.training.settings import FindLr, Part, TrainSettings
from captioning.training.trainer import trainer_and_plugins

FOLDER = "find_lr"
SMOOTHING = 0.9  # of the running mean of losses
SKIPPED = 5  # first losses, which are of a running mean of few
REWARDED = {"SelfCritical": "self_critical", "Grpo": "grpo"}
DIVERGED = 3.0  # the sweep ends where the smoothed loss is so many times its least


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """The result of a sweep.

    Attributes:
        rate: suggested learning rate.
        rates, losses: learning rates and losses of all updates.
        smoothed: running mean of the losses.
        folder: folder of the plot and the curve.
    """

    rate: float
    rates: Sequence[float]
    losses: Sequence[float]
    smoothed: Sequence[float]
    folder: Path


class Sweep(pl.Callback):
    """Set the learning rate of every update, and end training when the loss diverges."""

    def __init__(self, settings: FindLr) -> None:
        self.settings = settings
        self.losses: list[float] = []

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Set the learning rate of this batch."""
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.settings.rate(len(self.losses))

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Record the loss of each update, averaged over its batches and processes."""
        if trainer.global_step == len(self.losses):
            return
        self.losses.append(float(outputs["update_loss"]))  # the same in all processes
        smoothed = running_mean(self.losses)
        rise = smoothed[-1] - smoothed[0] > (DIVERGED - 1) * abs(min(smoothed))
        if not math.isfinite(smoothed[-1]) or (len(smoothed) > SKIPPED and rise):
            trainer.should_stop = True


def find_lr(settings: TrainSettings) -> Suggestion:
    """Sweep the learning rate; write plot and curve to ``run_dir/find_lr``, but no weights.

    All processes compute the same suggestion; the first of them writes it.

    Raises:
        ValueError: settings are incompatible, the objective's loss does not show progress, or no
            rate made the loss fall.
    """
    constant = {"_target_": "captioning.training.optim.cosine", "_partial_": True, "floor": 1.0}
    check_run(settings)
    _check_objective(settings.objective)
    settings = replace(settings, schedule=DictConfig(constant))
    set_up(settings)
    sweep = Sweep(settings.find_lr)
    model, datamodule = build_captioner(settings, load_inputs(settings))
    suit_machine(settings, model)
    trainer = _trainer(settings, sweep)
    trainer.fit(model, datamodule)
    return _suggested(settings.find_lr, sweep.losses, Path(settings.run_dir) / FOLDER)


def _check_objective(objective: Mapping[str, Any] | None) -> None:
    """Raise an error for policy-gradient objectives, whose loss stays near 0."""
    name = str((objective or {}).get("_target_")).rpartition(".")[2]
    if name in REWARDED:
        raise ValueError(
            f"objective={REWARDED[name]}: its loss does not fall as captions improve, so no "
            "learning rate can be read from it; find one with objective=likelihood, or set "
            "optimizer.lr by hand"
        )


def _trainer(settings: TrainSettings, sweep: Sweep) -> pl.Trainer:
    arguments, plugins = trainer_and_plugins(settings)
    return build_part(
        OmegaConf.masked_copy(arguments, _kept(arguments)),
        max_epochs=-1,
        max_steps=settings.find_lr.num_updates,
        callbacks=[StepSeed(seed=settings.seed), sweep],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        limit_val_batches=0,
        plugins=plugins,
        reload_dataloaders_every_n_epochs=1,
        use_distributed_sampler=False,
    )


def _kept(trainer: Part) -> list[str]:
    left_out = ("enable_progress_bar", "limit_val_batches", "check_val_every_n_epoch")
    return [str(key) for key in trainer if key not in left_out]


def running_mean(losses: Sequence[float]) -> list[float]:
    """Exponential moving average of the losses, with the bias towards 0 corrected."""
    mean, means = 0.0, []
    for number, loss in enumerate(losses, 1):
        mean = SMOOTHING * mean + (1 - SMOOTHING) * loss
        means.append(mean / (1 - SMOOTHING**number))
    return means


def steepest(rates: Sequence[float], smoothed: Sequence[float]) -> float | None:
    """Rate of the steepest fall of the smoothed loss before its minimum; None if there is none."""
    finite = [loss for loss in smoothed if math.isfinite(loss)]
    if len(finite) <= SKIPPED + 1:
        return None
    values = np.array(finite)
    slopes = np.gradient(values, np.log(np.array(rates[: len(values)])))
    last = max(SKIPPED + 1, int(values.argmin()))
    place = SKIPPED + int(slopes[SKIPPED:last].argmin())
    return float(rates[place]) if slopes[place] < 0 else None


def _suggested(settings: FindLr, losses: Sequence[float], folder: Path) -> Suggestion:
    rates = [settings.rate(update) for update in range(len(losses))]
    smoothed = running_mean(losses)
    rows = zip(rates, losses, smoothed, strict=True)
    lines = [f"{rate:.6g},{loss:.6g},{mean:.6g}" for rate, loss, mean in rows]
    rank_zero_only(write_lines)(folder / "curve.csv", ["rate,loss,smoothed", *lines])
    rate = steepest(rates, smoothed)
    rank_zero_only(_plot)(rates, losses, smoothed, rate, folder / "curve.png")
    if rate is None:
        raise ValueError(
            f"no rate from {settings.lowest} to {settings.highest} made the loss fall; see "
            f"{folder / 'curve.png'}, and give more updates: '+find_lr.num_updates=300'"
        )
    rank_zero_only(write_json)(folder / "suggestion.json", {"lr": rate, "num_updates": len(losses)})
    return Suggestion(rate=rate, rates=rates, losses=losses, smoothed=smoothed, folder=folder)


def _plot(
    rates: Sequence[float],
    losses: Sequence[float],
    smoothed: Sequence[float],
    rate: float | None,
    path: Path,
) -> None:
    with figure_style():
        figure, (axes,) = new_figure()
        axes.plot(rates, losses, color=GREY, linewidth=1, label="loss")
        axes.plot(rates, smoothed, color=BLUE, label="running mean")
        if rate is not None:
            line = {"color": VERMILION, "linestyle": "--"}
            axes.axvline(rate, **line, label=f"suggested: {rate:.2g}")
        axes.set(xscale="log", xlabel="learning rate", ylabel="training loss")
        axes.legend()
    save_figure(figure, path.parent, path.stem, ("png", "svg", "pdf"))


@rank_zero_only
def print_suggestion(rate: float, plot: Path) -> None:
    """Print the learning rate suggested by a sweep."""
    print(f"Suggested learning rate: optimizer.lr={rate:.2g}, where the loss fell most; see {plot}")
