"""Write checkpoints within an epoch, at a fixed interval or when a signal stops the run."""

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
    """Write ``checkpoints/preempted.ckpt`` after an update; end a run that a signal stops.

    The checkpoint holds everything needed to resume with the next batch. None is written after an
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
        """Replace Lightning's signal handlers, which would end a run at any line."""
        self.signals.deferred = True
        self.signals.install()
        # With several processes it would ask the device in every step whether one has got SIGTERM,
        # and wait for the answer.
        trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = _nothing
        self._step, self._saved = trainer.global_step, time.monotonic()
        self._under_way.clear()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop between two epochs; not called if training resumes within the epoch.

        Raises:
            Stopped: a process has received a signal.
        """
        self._remove(trainer)
        if number := self._agreed_now(trainer):
            raise Stopped("", number=number)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Stop if a checkpoint was written after the last step, whose values are logged by now.

        Raises:
            Stopped: a checkpoint was written and a signal asks to stop.
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
        """Save a checkpoint if requested and if this was the last batch of an update."""
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
        """Store the config in the checkpoint, so that another run's checkpoint is recognised."""
        checkpoint["config"] = self.config

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Remove the checkpoint, as the last epoch has its own."""
        self._remove(trainer)
        self.stop = self._agreed_now(trainer)

    def _wish(self) -> int:
        """Request of this process: a signal's number, or a code for a periodic checkpoint."""
        if self.signals.received or self.minutes is None:
            return self.signals.received
        return DUE if time.monotonic() - self._saved >= 60 * self.minutes else 0

    def _agreed(self, trainer: pl.Trainer) -> int:
        """Request on which the processes agreed; with several processes, from two steps ago."""
        if trainer.world_size == 1:
            return self._wish()
        self._under_way.append(HostCopy(_exchanged(trainer, self._wish())))
        if len(self._under_way) <= LAG:
            return 0
        return int(self._under_way.popleft().read()[0])

    def _agreed_now(self, trainer: pl.Trainer) -> int:
        """Signal that any process has received, or 0; waits for all processes."""
        self._under_way.clear()
        if trainer.world_size == 1:
            return self.signals.received
        return int(_exchanged(trainer, self.signals.received).item())

    def _remove(self, trainer: pl.Trainer) -> None:
        """Remove the checkpoint once the epoch's own checkpoint is newer."""
        if trainer.is_global_zero:
            self.path.unlink(missing_ok=True)


def _exchanged(trainer: pl.Trainer, value: int) -> torch.Tensor:
    """Start an all-reduce with the maximum over all processes, ``(1,)`` on the device."""
    values = torch.full((1,), value, device=trainer.strategy.root_device)
    dist.all_reduce(values, op=dist.ReduceOp.MAX)
    return values


def _is_validated(trainer: pl.Trainer) -> bool:
    """Whether validation follows this batch; a checkpoint saved before would skip it."""
    every = trainer.val_check_batch
    if not isinstance(every, int):
        return False
    loop = trainer.fit_loop
    return any((number + 1) % every == 0 for number in (loop.batch_idx, loop.total_batch_idx))


def _nothing() -> None:
    pass
