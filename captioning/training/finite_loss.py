"""Stop a run whose loss is not finite, without waiting for the device at every step."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

log = logging.getLogger(__name__)


class HostCopy:
    """Asynchronous copy of a small tensor from the device to the host.

    Args:
        tensor: tensor on any device.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._values, self._arrived = tensor.detach(), None
        if tensor.device.type == "cuda":
            self._values = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._values.copy_(tensor.detach(), non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record()

    def has_arrived(self) -> bool:
        """Whether `read` will return without waiting."""
        return self._arrived is None or self._arrived.query()

    def read(self) -> list[Any]:
        """Return the values; wait for the device if they have not arrived."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._values.tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """Losses of a step: the total loss, then the loss of each caption."""

    epoch: int
    number: int
    sample_ids: tuple[str, ...]
    losses: HostCopy


class FiniteLoss(pl.Callback):
    """Stop a run whose loss is NaN or infinite, before checkpoint and journal are written.

    A step's losses are checked when they arrive from the device, one or two steps later. All losses
    are checked before an epoch ends and before anything is saved.
    """

    def __init__(self) -> None:
        self._under_way: deque[_Step] = deque()
        self._has_looked = False

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Check the losses that have arrived; after an epoch's last step, check all losses.

        Raises:
            ValueError: a loss is not finite; the message names step, captions and remedy.
        """
        losses = torch.cat([outputs["loss"].detach().reshape(1), outputs["per_sample"].detach()])
        step = _Step(
            epoch=trainer.current_epoch,
            number=trainer.global_step,
            sample_ids=tuple(batch.sample_ids)[: len(outputs["per_sample"])],
            losses=HostCopy(losses),
        )
        self._under_way.append(step)
        self._look(wait=trainer.is_last_batch)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check all losses of an epoch that was cut short."""
        self._look(wait=True)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check all losses before the weights are validated."""
        self._look(wait=True)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Check all losses before the weights are saved."""
        self._look(wait=True)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Discard the losses of the current epoch, as the device may not respond any more."""
        self._under_way.clear()

    def _look(self, *, wait: bool) -> None:
        while self._under_way and (wait or self._under_way[0].losses.has_arrived()):
            step = self._under_way.popleft()
            _check(step)
            self._warn_of_equal(step)

    def _warn_of_equal(self, step: _Step) -> None:
        """Warn if all captions of the first step have one loss, as curation cannot rank them."""
        if self._has_looked:
            return
        _, *per_sample = step.losses.read()
        self._has_looked = len(per_sample) > 1
        if not self._has_looked or len(set(per_sample)) > 1:
            return
        log.warning(
            f"all {len(per_sample)} captions of step {step.number} have the same loss, "
            f"{per_sample[0]:.4g}: is it a mean over the batch? per_sample must have each "
            "caption's own, or curation cannot tell them apart"
        )


def _check(step: _Step) -> None:
    loss, *per_sample = step.losses.read()
    if abs(loss) < float("inf"):  # not so for NaN
        return
    bad_ids = [
        sample_id
        for sample_id, value in zip(step.sample_ids, per_sample, strict=True)
        if not abs(value) < float("inf")
    ]
    raise ValueError(
        f"loss is {loss} at epoch {step.epoch}, step {step.number} "
        f"({len(bad_ids)} captions, such as {bad_ids[:3]}); lower optimizer.lr, or set "
        "trainer.gradient_clip_val; resume=auto resumes from the last good epoch"
    )
