"""A callback that logs when training reaches each stage, for `bench_size.py`.

``SIZE_MARKS`` names the file; ``SIZE_STOP=N`` kills the process in the first step of epoch N.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import time

import numpy as np
import pytorch_lightning as pl
import torch

from curation.loop.callback import CurationCallback


class Marks(pl.Callback):
    """Appends marks: name, seconds since 1970, CPU seconds and peak memory (MB) so far."""

    def __init__(self) -> None:
        self.path = os.environ["SIZE_MARKS"]
        self.stop = int(os.environ.get("SIZE_STOP", "-1"))
        self._is_first = True

    def mark(self, name: str) -> None:
        """Append one mark to the file."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
        values = {"mark": name, "time": time.time(), "cpu": cpu, "peak": peak}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        """Mark the start of the epoch's last step, after which the policy acts."""
        if batch_idx == trainer.num_training_batches - 1:
            _fill_ledger(trainer)
            self.mark(f"last step of epoch {trainer.current_epoch}")

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        """Mark the first step of the process and of each epoch, and the end of curation."""
        if self._is_first:
            self.mark("first step")
            self._is_first = False
        if batch_idx == 0:
            self.mark(f"first step of epoch {trainer.current_epoch}")
            if trainer.current_epoch == self.stop:
                os.kill(os.getpid(), signal.SIGKILL)
        if trainer.is_last_batch:
            self.mark(f"curation of epoch {trainer.current_epoch}")

    def on_train_epoch_end(self, trainer, pl_module) -> None:
        """Mark the end of validation, before the checkpoint."""
        self.mark(f"validation of epoch {trainer.current_epoch}")

    def on_train_end(self, trainer, pl_module) -> None:
        """Mark the time after the report was written."""
        self.mark("report")


def _fill_ledger(trainer: pl.Trainer) -> None:
    """Draw random losses of all captions, because a short benchmark trains on few captions."""
    for callback in trainer.callbacks:
        if isinstance(callback, CurationCallback) and callback.curator is not None:
            curator = callback.curator
            rng = np.random.default_rng(trainer.current_epoch)
            rows = torch.tensor([sample.row for sample in curator.view.samples()])
            losses = rng.gamma(9, 0.4, len(rows)).astype(np.float32)
            curator.ledger.add(rows, torch.from_numpy(losses))
