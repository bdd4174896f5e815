"""Checkpoints within an epoch, written when a signal stops the run, or at a fixed interval."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist

from captioning.results.checkpoints import PREEMPTED
from captioning.training.finite_loss import HostCopy
from captioning.training.signals import Stopped, StopSignals

# What processes tell each other: the number of a signal, or that a checkpoint is due.
DUE = 1
# Steps after which a word of other processes is read: it has arrived from the device by then.
LAG = 2


class Preemption(pl.Callback):
    """Writes ``checkpoints/preempted.ckpt`` after an update, and ends a run that a signal stops.

    The checkpoint holds all that resuming with the next batch needs. None is written after an
    epoch's last update, because `last.ckpt` holds the epoch's end. A run that is stopped there ends
    once `last.ckpt` is written. List this callback after all callbacks that have a state.

    All processes stop after the same update: each sends its request to the others in every step,
    and reads the agreed decision two steps later, when it has arrived from the device.

    Args:
        signals: the run's signals.
        folder: the run's folder.
        minutes: between checkpoints amid an epoch; None writes them on signals alone.
        config: config of the run as YAML; it is kept in every checkpoint.
    """

    def __init__(
        self,
        *,
        signals: StopSignals,
        folder: Path,
        minutes: float | None = None,
        config: str = "",
    ) -> None:
        self.signals = signals
        self.path = Path(folder) / "checkpoints" / PREEMPTED
        self.minutes, self.config = minutes, config
        self.stop = 0
        self._step, self._saved = -1, 0.0
        self._under_way: deque[HostCopy] = deque()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the place of Lightning's handlers, which end a run between any two lines."""
        self.signals.deferred = True
        self.signals.install()
        # With several processes it would ask the device in every step whether one has got SIGTERM,
        # and wait for the answer.
        trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = _nothing
        self._step, self._saved = trainer.global_step, time.monotonic()
        self._under_way.clear()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop between two epochs; not called where an epoch resumes.

        Raises:
            Stopped: a signal has come, to any process.
        """
        self._remove(trainer)
        if number := self._agreed_now(trainer):
            raise Stopped("", number=number)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Stop where the step before was saved: it has been logged by now.

        Raises:
            Stopped: it was.
        """
        if self.stop:
            raise Stopped("", number=self.stop)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Save, if requested and this was the last batch of an update."""
        wish = self._agreed(trainer)
        is_updated, self._step = trainer.global_step > self._step, trainer.global_step
        if not wish or not is_updated or trainer.is_last_batch or _is_validated(trainer):
            return
        trainer.save_checkpoint(self.path)
        self._saved = time.monotonic()
        self.stop = 0 if wish == DUE else wish

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Keep the config, so that a checkpoint of another run is known as such."""
        checkpoint["config"] = self.config

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The last epoch's checkpoint is there."""
        self._remove(trainer)
        self.stop = self._agreed_now(trainer)

    def _wish(self) -> int:
        """What this process wants."""
        if self.signals.received or self.minutes is None:
            return self.signals.received
        return DUE if time.monotonic() - self._saved >= 60 * self.minutes else 0

    def _agreed(self, trainer: pl.Trainer) -> int:
        """What is wanted of this step; with several processes it was said two steps ago."""
        if trainer.world_size == 1:
            return self._wish()
        self._under_way.append(HostCopy(_exchanged(trainer, self._wish())))
        if len(self._under_way) <= LAG:
            return 0
        return int(self._under_way.popleft().read()[0])

    def _agreed_now(self, trainer: pl.Trainer) -> int:
        """The signal that any process has got, or 0; waits for all of them."""
        self._under_way.clear()
        if trainer.world_size == 1:
            return self.signals.received
        return int(_exchanged(trainer, self.signals.received).item())

    def _remove(self, trainer: pl.Trainer) -> None:
        """Remove the checkpoint, which an epoch's end has overtaken."""
        if trainer.is_global_zero:
            self.path.unlink(missing_ok=True)


def _exchanged(trainer: pl.Trainer, value: int) -> torch.Tensor:
    """The largest value of all processes, ``(1,)`` on the device."""
    values = torch.full((1,), value, device=trainer.strategy.root_device)
    dist.all_reduce(values, op=dist.ReduceOp.MAX)
    return values


def _is_validated(trainer: pl.Trainer) -> bool:
    """Whether a validation follows this batch, which a checkpoint from before would leave out."""
    every = trainer.val_check_batch
    if not isinstance(every, int):
        return False
    loop = trainer.fit_loop
    return any((number + 1) % every == 0 for number in (loop.batch_idx, loop.total_batch_idx))


def _nothing() -> None:
    pass
