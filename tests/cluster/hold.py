"""A callback that holds a run at some updates until a signal has come, for tests to send it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from captioning.training.preemption import Preemption

SECONDS = 120.0


class Hold(pl.Callback):
    """Holds the first process, once at each place, which a file of that name tells.

    Args:
        folder: of the files.
        places: updates, as ``EPOCH-BATCH``.
    """

    def __init__(self, *, folder: str, places: Sequence[str]) -> None:
        self.folder, self.places = Path(folder), list(places)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Wait for the signal.

        Raises:
            TimeoutError: none came.
        """
        place = f"{trainer.current_epoch}-{batch_idx}"
        file = self.folder / place
        if place not in self.places or not trainer.is_global_zero or file.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        file.touch()
        callbacks: list[pl.Callback] = getattr(trainer, "callbacks")  # noqa: B009 - not declared
        (preemption,) = [callback for callback in callbacks if isinstance(callback, Preemption)]
        end = time.monotonic() + SECONDS
        while not preemption.signals.received:
            if time.monotonic() > end:
                raise TimeoutError(f"no signal at {place}")
            time.sleep(0.05)
