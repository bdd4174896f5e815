"""Measures how much the photo helps to predict each caption."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Literal

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from torch import Tensor

from captioning.ranges import NonNegativeInt
from captioning.types import Batch
from curation.loop.ledger import LossLedger
from curation.loop.probes import AbstractProbe, measuring, record, score
from curation.score.visual_gain import SIGNAL

_MEAN_BATCHES = 64


class VisualGainProbe(AbstractProbe):
    """Losses as `OnlineProbe` records them, and the visual gain by two passes in eval mode.

    The gain is the caption's loss given a mean image less its loss given the photo. The mean image
    has the mean feature vector of the first photos in each of its regions; for photos as pixels it
    is 0, the mean colour of normalised pixels.

    Args:
        per: ``"token"``, the mean over the caption's tokens, or ``"sentence"``, their sum.
        rescored: record the losses of the pass with photos, all of the same weights, in place of
            those of training.
        until_epoch: last epoch (from 0) at whose end the gain is measured; None for no end. Saves
            the passes that a policy that acts once would not look at.

    Raises:
        ValueError: another ``per``, or ``rescored`` with an end, after which there are no losses.
    """

    signals = (SIGNAL,)

    def __init__(
        self,
        *,
        per: Literal["token", "sentence"] = "token",
        rescored: bool = False,
        until_epoch: NonNegativeInt | None = None,
    ) -> None:
        if per not in ("token", "sentence"):
            raise ValueError(f"per must be 'token' or 'sentence': got {per!r}")
        if rescored and until_epoch is not None:
            raise ValueError(
                "rescored losses are needed in every epoch: set until_epoch=null, "
                f"got {until_epoch}"
            )
        self.per = per
        self.rescored = rescored
        self.until_epoch = until_epoch
        self._mean: Tensor | None = None

    def observe(self, ledger: LossLedger, outputs: Any) -> None:
        """Add the step's losses, unless those of the later pass are to be recorded."""
        if not self.rescored:
            record(ledger, outputs)

    def finish(
        self,
        ledger: LossLedger,
        signals: Mapping[str, LossLedger],
        trainer: pl.Trainer,
        module: pl.LightningModule,
    ) -> None:
        """Score all live samples twice."""
        if self.until_epoch is not None and trainer.current_epoch > self.until_epoch:
            return
        with measuring(trainer, module) as batches:
            if self._mean is None:
                self._mean = _mean_region(batches)
            for batch in batches():
                rows, seen, sums = score(module, batch)
                blind = score(module, blinded(batch, self._mean))[1]
                gain = blind - seen
                if self.per == "sentence":
                    gain = gain * (batch.token_mask.sum(1) - 1)  # the first token is given
                signals[SIGNAL].add(rows, gain)
                if self.rescored:
                    ledger.add(rows, seen, sums)


def blinded(batch: Batch, mean: Tensor | None) -> Batch:
    """The batch without visual content.

    Args:
        batch: with regions or pixels.
        mean: ``(D,)`` put into each region; None where there are pixels.
    """
    regions = None
    if batch.regions is not None and mean is not None:
        regions = mean.to(batch.regions).expand_as(batch.regions)
    images = None
    if batch.images is not None:  # in uint8 0 would be black
        images = torch.zeros_like(batch.images, dtype=torch.float32)
    return replace(batch, regions=regions, images=images)


def _mean_region(batches: Callable[[], Iterator[Batch]]) -> Tensor | None:
    """``(D,)`` mean over the regions of the first photos, the same in all processes."""
    total, count = None, 0.0
    for batch in islice(batches(), _MEAN_BATCHES):
        if batch.regions is None:
            return None
        regions = batch.regions.double()
        mask = torch.ones(regions.shape[:2]) if batch.region_mask is None else batch.region_mask
        mask = mask.to(regions)
        part = (regions * mask.unsqueeze(-1)).sum((0, 1))
        total, count = part if total is None else total + part, count + float(mask.sum())
    if total is None:
        return None
    if dist.is_available() and dist.is_initialized():
        packed = torch.cat([total, total.new_tensor([count])])
        dist.all_reduce(packed)
        total, count = packed[:-1], float(packed[-1])
    return (total / max(count, 1)).float()
