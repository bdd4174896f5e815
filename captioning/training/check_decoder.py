"""What a decoder gives is looked at before the first update."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl

from captioning.decoding.given import check_stepper
from captioning.decoding.words import request_of
from captioning.models.base import AbstractCaptioner


class CheckDecoder(pl.Callback):
    """Refuses a captioner whose ``step`` gives no log-probabilities, where batches are tried first.

    A run tries them that names ``plugins``, or sets ``trainer.num_sanity_val_steps``.
    """

    def on_validation_batch_start(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Look at the first words of a batch that is tried; see `check_stepper`."""
        if trainer.sanity_checking and isinstance(pl_module, AbstractCaptioner):
            device = batch.rows.device
            request = request_of(pl_module, pl_module.tokenizer, batch.image_ids, device=device)
            check_stepper(pl_module, pl_module.start(batch), request)
