"""A callback that writes down when a training reached what, for `bench_size.py`."""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch

from curation.loop.callback import CurationCallback


class Marks(pl.Callback):
    """Appends marks to a file: name, seconds since 1970, processor seconds, peak memory in MB.

    Args:
        path: of the JSON Lines file.
        stop_after: kill the process in the first step after so many epochs; 0: never.
    """

    def __init__(self, *, path: str, stop_after: int = 0) -> None:
        self.path, self.stop_after = Path(path), stop_after
        self._is_first = True

    def mark(self, name: str) -> None:
        """Write one."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        values = {
            "mark": name,
            "time": time.time(),
            "cpu": used.ru_utime + used.ru_stime,
            "peak_mb": used.ru_maxrss / 1024,
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        """The first step of the process, and the last of each epoch."""
        if self._is_first:
            self.mark("first step")
            self._is_first = False
        if self.stop_after and trainer.current_epoch >= self.stop_after:
            os.kill(os.getpid(), signal.SIGKILL)
        if batch_idx == 0:
            _fill_ledger(trainer)
            self.mark(f"step 0 of epoch {trainer.current_epoch}")

    def on_train_epoch_end(self, trainer, pl_module) -> None:
        """After curation and validation, before the checkpoint."""
        self.mark(f"end of epoch {trainer.current_epoch}")


def _fill_ledger(trainer: pl.Trainer) -> None:
    """Draw the losses of all captions, of which the few steps of a benchmark train on some."""
    for callback in trainer.callbacks:
        if isinstance(callback, CurationCallback) and callback.curator is not None:
            curator = callback.curator
            rng = np.random.default_rng(trainer.current_epoch)
            rows = torch.tensor([sample.row for sample in curator.view.samples()])
            losses = rng.gamma(9, 0.4, len(rows)).astype(np.float32)
            curator.ledger.add(rows, torch.from_numpy(losses))
