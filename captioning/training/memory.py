"""Keep memory from growing during training, and name settings to lower if it runs out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn

from captioning.runtime.cores import step_ended
from captioning.training.settings import TrainSettings

# How torch tells that the processor's memory is used up; it has no type of its own for that.
OF_PROCESSOR = ("can't allocate memory", "not enough memory")


class GiveMemoryBack(pl.Callback):
    """Return freed memory during training on a CPU, see `captioning.runtime.cores.step_ended`."""

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Count the training step."""
        if pl_module.device.type == "cpu":
            step_ended()


@contextmanager
def memory_advice(settings: TrainSettings, model: nn.Module) -> Iterator[None]:
    """Within the block, an out-of-memory error names the settings to lower.

    Args:
        settings: the run's settings.
        model: the run's model; in training mode while an update is made.

    Raises:
        MemoryError: there is too little memory.
    """
    try:
        yield
    except (torch.OutOfMemoryError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        is_full = isinstance(error, torch.OutOfMemoryError)
        if not is_full and not any(sign in reason for sign in OF_PROCESSOR):
            raise
        if not model.training:
            raise MemoryError(
                f"out of memory while captions are generated ({reason[:200]}): "
                f"{_when_generating(settings)}; resume=auto resumes from the last epoch"
            ) from error
        raise MemoryError(
            f"out of memory in training ({reason[:200]}): {when_training(settings)}; resume=auto "
            "resumes from the last epoch where these keys are the same"
        ) from error


def _when_generating(settings: TrainSettings) -> str:
    """Settings to lower when generation of captions runs out of memory."""
    beam = settings.search.get("beam_size")
    smaller_beam = f", or search.beam_size={beam}" if beam else ""
    return f"lower loader.eval_batch_size={settings.loader['eval_batch_size']}{smaller_beam}"


def when_training(settings: TrainSettings) -> str:
    """Settings of this config to lower when an update runs out of memory."""
    size = settings.loader["batch_size"]
    number = settings.trainer.get("accumulate_grad_batches", 1)
    advice = [
        f"lower loader.batch_size={size} (loader.batch_size={max(1, size // 2)} with "
        f"trainer.accumulate_grad_batches={2 * number} makes as large updates)"
    ]
    if settings.model.checkpointing is False:
        advice.append("set model.checkpointing=true")
    if str(settings.precision) in ("32", "32-true", "None"):
        advice.append("set trainer.precision=bf16-mixed")
    side = (settings.features.backbone or {}).get("image_size")
    if side and settings.features.reader:
        advice.append(f"lower features.backbone.image_size={side}")
    return ", or ".join(advice)
