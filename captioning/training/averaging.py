"""Exponential moving average of the weights, quick to forget its beginning."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor, nn


class WarmWeightAveraging(WeightAveraging):
    """Validation, test and checkpoints use averaged weights.

    After ``n`` updates the decay is ``min(decay, (1 + n) / (10 + n))``: a short run is not
    spoilt by the untrained weights that a constant decay would still remember.

    The average lies on the run's device and is made there in one operation. The updates are counted
    on the host, as asking the device for their number would wait for it.

    Args:
        decay: of the average in the long run, in (0, 1).
    """

    def __init__(self, *, decay: float) -> None:
        super().__init__()
        self.decay = decay
        self._number = 0

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Make the average on the device to which the model goes; it is not there yet."""
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
        """Average the weights after an update."""
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
        """Go on with the average and its number of updates."""
        super().on_load_checkpoint(trainer, pl_module, checkpoint)
        if self._average_model is not None:
            self._number = int(self._average_model.n_averaged)


def _tensors(module: nn.Module) -> list[Tensor]:
    """Weights and buffers, detached."""
    return [tensor.detach() for tensor in chain(module.parameters(), module.buffers())]


@torch.no_grad()
def _move(averaged: list[Tensor], current: list[Tensor], rate: float) -> None:
    """Move averages by a share ``rate`` of the way to the current values, in place.

    Counters of normalisation layers have no mean: they are copied.
    """
    pairs = list(zip(averaged, current, strict=True))
    means = [pair for pair in pairs if rate < 1 and pair[0].is_floating_point()]
    copies = [pair for pair in pairs if not (rate < 1 and pair[0].is_floating_point())]
    if means:
        torch._foreach_lerp_([old for old, _ in means], [new for _, new in means], rate)
    if copies:
        torch._foreach_copy_([old for old, _ in copies], [new for _, new in copies])
