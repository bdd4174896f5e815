"""Lightning trainer of a run, with this project's callbacks, weight averaging and atomic saves."""

from __future__ import annotations

import errno
import functools
import os
import warnings
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins import TorchCheckpointIO
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from omegaconf import open_dict
from pytorch_lightning.callbacks import ModelCheckpoint, WeightAveraging
from pytorch_lightning.callbacks import ProgressBar as AnyProgressBar
from pytorch_lightning.utilities.exceptions import (
    MisconfigurationException,  # pyright: ignore[reportPrivateImportUsage]
)
from torch import Tensor, nn

from captioning.config.build import build_part
from captioning.results.checkpoints import check_sums
from captioning.runtime.files import write_atomically
from captioning.training.callbacks import (
    CaptionEvaluation,
    Monitor,
    ProgressBar,
    SampleCaptions,
    Speed,
    StartScore,
    StayStopped,
    StepSeed,
)
from captioning.training.finite_loss import FiniteLoss
from captioning.training.memory import GiveMemoryBack
from captioning.training.preemption import Preemption
from captioning.training.processes import EndTogether
from captioning.training.reserved import RESERVED
from captioning.training.settings import Part, TrainSettings
from captioning.training.signals import StopSignals
from captioning.training.speed import precision_plugin
from captioning.training.step_memory import SayStepMemory


def check_trainer(settings: Mapping[str, Any]) -> None:
    """Raise an error for settings of ``trainer`` that a run sets itself.

    Raises:
        ValueError: a setting is reserved, or the number of accumulated batches is invalid.
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
    """Number of updates of a whole run, which is the horizon of its schedule.

    Batches that remain at an epoch's end make an update of their own. The run may be shortened by
    ``trainer.limit_train_batches``, a number of batches (int) or a share of them (float) in each
    epoch, and by ``trainer.max_steps``; -1 or no value for the latter means no limit.
    """
    trainer = settings.trainer
    batches = _limited(batches_per_epoch, trainer.get("limit_train_batches"))
    updates = settings.num_epochs * -(-batches // trainer.get("accumulate_grad_batches", 1))
    max_steps = trainer.get("max_steps", -1)
    return min(updates, max_steps) if max_steps > 0 else updates


def _limited(batches: int, limit: float | None) -> int:
    """Number of batches of an epoch after Lightning's limit, which must leave at least one."""
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
    """Build the trainer of a run.

    Args:
        settings: the run's settings.
        folder: the run's folder.
        saved: the run's config, which checkpoints amid an epoch hold.
        evaluation: logs the scores that other callbacks monitor, so it comes first.
        truth: the planted faults by sample, if any, for curation.
        signals: signals that ask the run to end; None: no signals.

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
    """Build the trainer with its own arguments and the plugins that go with them."""
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
    """Silence Lightning's advice to use srun, as cluster machines may be used without a queue."""
    warnings.filterwarnings("ignore", "The `srun` command is available")


def _environment() -> list[SLURMEnvironment]:
    """Lightning's environment of a Slurm job, which must not save and requeue jobs itself.

    Raises:
        ValueError: the job has several tasks that Lightning cannot number.
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
    """Callbacks of every run, to be placed before the callbacks ``chosen`` in the config.

    Steps are thus seeded before a chosen callback draws random numbers, and curation edits the
    epoch's samples before a chosen callback sees the epoch's end.
    """
    callbacks = [
        EndTogether(folder=folder),
        StepSeed(seed=settings.seed),
        FiniteLoss(),
        GiveMemoryBack(),
        SayStepMemory(settings=settings),
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
    """Checkpoint callbacks: ``best.ckpt`` when the monitored score rises, then ``last.ckpt``.

    One callback with ``save_last`` would write the last checkpoint only with a new best one.
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


class WarmWeightAveraging(WeightAveraging):
    """Use averaged weights in validation, test and checkpoints.

    After ``n`` updates the decay is ``min(decay, (1 + n) / (10 + n))``: a constant decay would
    leave untrained weights in the average of a short run.

    The average is computed on the run's device in one operation. Updates are counted on the host,
    as reading their number from the device would wait.

    Args:
        decay: decay of the average in the long run, in (0, 1).
    """

    def __init__(self, *, decay: float) -> None:
        super().__init__()
        self.decay = decay
        self._number = 0

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Create the average on the device that the model will move to."""
        self._device = trainer.strategy.root_device
        super().setup(trainer, pl_module, stage)
        self._number = 0

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Update the average after an update of the weights."""
        average = self._average_model
        if average is None or trainer.global_step <= self._latest_update_step:
            return
        rate = 1.0
        if self._number:
            rate = 1 - min(self.decay, (1 + self._number) / (10 + self._number))
        _move(_tensors(average.module), _tensors(pl_module), rate)
        self._number += 1
        average.n_averaged += 1  # for the checkpoint
        self._latest_update_step = trainer.global_step

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Restore the average and its number of updates from a checkpoint."""
        super().on_load_checkpoint(trainer, pl_module, checkpoint)
        if self._average_model is not None:
            self._number = int(self._average_model.n_averaged)


def _tensors(module: nn.Module) -> list[Tensor]:
    """Weights and buffers, detached."""
    return [tensor.detach() for tensor in chain(module.parameters(), module.buffers())]


@torch.no_grad()
def _move(averaged: list[Tensor], current: list[Tensor], rate: float) -> None:
    """Move averages a share ``rate`` towards the current values, in place.

    Counters of normalisation layers are copied, as they have no mean.
    """
    pairs = list(zip(averaged, current, strict=True))
    means = [pair for pair in pairs if rate < 1 and pair[0].is_floating_point()]
    copies = [pair for pair in pairs if not (rate < 1 and pair[0].is_floating_point())]
    if means:
        olds, news = [old for old, _ in means], [new for _, new in means]
        torch._foreach_lerp_(olds, news, rate)  # pyright: ignore[reportPrivateImportUsage]
    if copies:
        olds, news = [old for old, _ in copies], [new for _, new in copies]
        torch._foreach_copy_(olds, news)  # pyright: ignore[reportPrivateImportUsage]


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write checkpoints atomically: verify a temporary file's checksums, then rename the file.

    The former checkpoint remains until then. torch keeps a CRC-32 of every tensor as it was in
    memory.

    Lightning's own writer goes through the system's temporary folder; where that is another disk,
    moving the file is a copy, and a kill in its midst leaves half a checkpoint.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Write ``checkpoint`` to ``path``.

        Raises:
            OSError: the disk is full, or does not hold the written bytes; the former checkpoint
                remains.
        """
        write_atomically(Path(path), functools.partial(_write, checkpoint))


def _write(checkpoint: dict[str, Any], part: Path) -> None:
    try:
        with part.open("wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())
            if hasattr(os, "posix_fadvise"):  # to read from the disk, not from memory
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):  # the disk's, which torch hides
            raise error.__context__ from error
        raise
    try:
        check_sums(part)
    except ValueError as error:
        problem = f"the disk does not hold what was written ({error})"
        raise OSError(errno.EIO, problem) from error
