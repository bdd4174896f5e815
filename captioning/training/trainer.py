"""The trainer of a run: Lightning's, with our callbacks and those that the config names."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from omegaconf import open_dict
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.callbacks import ProgressBar as AnyProgressBar
from pytorch_lightning.utilities.exceptions import (
    MisconfigurationException,  # pyright: ignore[reportPrivateImportUsage]
)

from captioning.config.build import build_part
from captioning.training.averaging import WarmWeightAveraging
from captioning.training.callbacks import (
    CaptionEvaluation,
    ProgressBar,
    Speed,
    StartScore,
    StayStopped,
    StepSeed,
)
from captioning.training.checkpoint_io import AtomicCheckpointIO
from captioning.training.finite_loss import FiniteLoss
from captioning.training.memory import GiveMemoryBack
from captioning.training.monitoring import Monitor, SampleCaptions
from captioning.training.preemption import Preemption
from captioning.training.processes import EndTogether
from captioning.training.reserved import RESERVED
from captioning.training.settings import Part, TrainSettings
from captioning.training.signals import StopSignals
from captioning.training.speed import precision_plugin


def check_trainer(settings: Mapping[str, Any]) -> None:
    """Refuse settings of ``trainer`` that a run sets itself.

    Raises:
        ValueError: such a setting, with the key to use instead, or a wrong number of batches.
    """
    for key, remedy in RESERVED.items():
        if key in settings:
            raise ValueError(f"trainer.{key} is set by the run: {remedy}")
    number = settings.get("accumulate_grad_batches", 1)
    if not isinstance(number, int) or number < 1:
        raise ValueError(
            f"trainer.accumulate_grad_batches must be a whole number of at least 1: got {number!r}"
        )


def num_updates(settings: TrainSettings, batches_per_epoch: int) -> int:
    """Updates of a whole run, the horizon of its schedule.

    Remaining batches at an epoch's end make an update of their own. The run ends early by
    ``trainer.limit_train_batches``, a number of batches (int) or a share of them (float) in each
    epoch, and by ``trainer.max_steps``; -1 or nothing for the latter is no limit.
    """
    trainer = settings.trainer
    batches = _limited(batches_per_epoch, trainer.get("limit_train_batches"))
    updates = settings.num_epochs * -(-batches // trainer.get("accumulate_grad_batches", 1))
    max_steps = trainer.get("max_steps", -1)
    return min(updates, max_steps) if max_steps > 0 else updates


def _limited(batches: int, limit: float | None) -> int:
    """Batches of an epoch as Lightning limits them, which refuses a share below one batch."""
    if limit is None:
        return batches
    return min(batches, limit) if isinstance(limit, int) else max(1, int(batches * limit))


def build_trainer(
    settings: TrainSettings,
    folder: Path,
    *,
    saved: str = "",
    evaluation: CaptionEvaluation,
    truth: Mapping[str, str],
    signals: StopSignals | None = None,
) -> pl.Trainer:
    """The trainer of a run.

    Args:
        settings: of the run.
        folder: of the run.
        saved: the run's config, which checkpoints amid an epoch hold.
        evaluation: logs the scores that other callbacks monitor, so it comes first.
        truth: the planted faults by sample, if any, for curation.
        signals: that ask the run to end; None: none do.

    Raises:
        ValueError: settings that Lightning refuses.
    """
    trainer, plugins = trainer_and_plugins(settings)
    try:
        chosen = [_callback(name, entry) for name, entry in (settings.callbacks or {}).items()]
        return build_part(
            trainer,
            max_epochs=settings.num_epochs,
            callbacks=[
                evaluation,
                Monitor(),
                SampleCaptions(evaluation=evaluation),
                *_default_callbacks(settings, folder, truth, chosen),
                *chosen,
                Preemption(
                    signals=signals or StopSignals(),
                    folder=folder,
                    minutes=settings.checkpoint_minutes,
                    config=saved,
                ),
                *_checkpoints(settings, folder),
            ],
            logger=[build_part(entry) for entry in (settings.logger or {}).values()] or False,
            default_root_dir=folder,
            plugins=plugins,
            reload_dataloaders_every_n_epochs=1,
            use_distributed_sampler=False,
        )
    except MisconfigurationException as error:
        raise ValueError(f"trainer and callbacks do not fit together: {error}") from error


def trainer_and_plugins(settings: TrainSettings) -> tuple[Part, list[Any]]:
    """The trainer with its own arguments, and the plugins that go with them."""
    trainer, plugins = settings.trainer, [AtomicCheckpointIO(), *_environment()]
    if (precision := precision_plugin(settings)) is not None:
        trainer, plugins = _without(trainer, "precision"), [*plugins, precision]
    if trainer.get("num_sanity_val_steps") is None:
        # a search or decoder of the user's own is tried before an epoch is spent
        trainer = trainer.copy()
        with open_dict(trainer):
            trainer.num_sanity_val_steps = int(bool(settings.plugins))
    return trainer, plugins


def ignore_srun_advice() -> None:
    """Silence Lightning's advice: a machine of a cluster may well be used without its queue."""
    warnings.filterwarnings("ignore", "The `srun` command is available")


def _environment() -> list[SLURMEnvironment]:
    """Slurm's, where a run is started by it: Lightning would save and queue jobs itself.

    Raises:
        ValueError: a job of several tasks that Lightning cannot number.
    """
    ignore_srun_advice()
    if not SLURMEnvironment.detect():
        return []
    try:
        return [SLURMEnvironment(auto_requeue=False)]
    except RuntimeError as error:
        raise ValueError(f"Slurm: {error}") from error


def _without(part: Part, key: str) -> Part:
    part = part.copy()
    with open_dict(part):  # Hydra's configs take no deletion otherwise
        del part[key]
    return part


def _callback(name: str, entry: Part) -> pl.Callback:
    callback = build_part(entry)
    if not isinstance(callback, pl.Callback):
        raise ValueError(
            f"callbacks.{name}: must build a pytorch_lightning.Callback, got "
            f"{type(callback).__name__} of {entry.get('_target_')}"
        )
    return callback


def _default_callbacks(
    settings: TrainSettings, folder: Path, truth: Mapping[str, str], chosen: Sequence[pl.Callback]
) -> list[pl.Callback]:
    """Callbacks of every run; they stand before the callbacks ``chosen`` by its config.

    So steps are seeded before a chosen callback draws, and curation has edited the epoch's samples
    before a chosen callback sees the epoch's end.
    """
    callbacks = [
        EndTogether(folder=folder),
        StepSeed(seed=settings.seed),
        FiniteLoss(),
        GiveMemoryBack(),
        Speed(folder=folder),
        StayStopped(),
    ]
    if settings.start_score:
        name, metrics = settings.start_from, settings.metrics.val
        callbacks.append(StartScore(folder=folder, name=name, metrics=metrics))
    shows_progress = settings.trainer.get("enable_progress_bar", True)
    if shows_progress and not any(isinstance(callback, AnyProgressBar) for callback in chosen):
        callbacks.append(ProgressBar())
    if settings.ema_decay is not None:
        callbacks.append(WarmWeightAveraging(decay=settings.ema_decay))
    if settings.curation.callback:
        of_run = {"run_folder": folder, "seed": settings.seed, "truth": truth or None}
        callbacks.append(build_part(settings.curation.callback, **of_run))
    return callbacks


def _checkpoints(settings: TrainSettings, folder: Path) -> list[ModelCheckpoint]:
    """``best.ckpt`` when the monitored score rises, then ``last.ckpt``, which knows of it.

    One callback with ``save_last`` would not do: it writes the last checkpoint only when there is a
    new best one.
    """
    options = {
        "dirpath": folder / "checkpoints",
        # After curation has edited the epoch's samples: a checkpoint holds epoch k and its edits.
        "save_on_train_epoch_end": True,
        "enable_version_counter": False,
    }
    last = ModelCheckpoint(filename="last", save_top_k=1, **options)
    callbacks = [last]
    if settings.monitor != "last":
        best = ModelCheckpoint(filename="best", monitor=settings.monitor, mode="max", **options)
        callbacks.insert(0, best)
    if settings.keep_every_epoch:
        every_epoch = {
            "filename": "epoch{epoch}",
            "auto_insert_metric_name": False,
            "save_top_k": -1,
        }
        # Lightning tells checkpoint callbacks apart by what they monitor.
        callbacks.append(ModelCheckpoint(monitor="epoch", **every_epoch, **options))
    return callbacks
