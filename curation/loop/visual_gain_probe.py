"""Measure how much the photo helps to predict each caption, and score captions by this gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from torch import Tensor

from captioning.config.ranges import NonNegativeInt, PositiveInt
from captioning.config.setting_error import Setting, SettingError
from captioning.data.roster import Roster, build_roster
from captioning.types import Batch, Sample
from curation.base import Context, Score
from curation.loop.ledger import LossLedger
from curation.loop.probes import AbstractProbe, datamodule_of, measuring, record, score

MEAN_PHOTOS = 1000  # maximum photos for the mean image
SIGNAL = "visual_gain"


class VisualGainProbe(AbstractProbe):
    """Records losses as `OnlineProbe`, and measures the visual gain in two passes in eval mode.

    The gain is the caption's loss given a mean image less its loss given the photo. The mean image
    has in each of its regions the mean feature vector of `MEAN_PHOTOS` photos, evenly spaced over
    the roster before curation; for photos as pixels it is 0, the mean colour of normalised pixels.
    So it is the same after any edits, in a resumed run, and for any batches and processes.

    The data module gives those photos by ``eval_dataloader(roster, shared=False)``.

    Args:
        per: ``"token"``, the mean over the caption's tokens, or ``"sentence"``, their sum.
        rescored: record the losses of the pass with photos, all of the same weights, in place of
            those of training.
        until_epoch: last epoch (from 0) at whose end the gain is measured; None for no end. Saves
            passes that a policy that acts once would ignore.

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
            raise SettingError(
                Setting("until_epoch", str(until_epoch)),
                "rescored losses are needed in every epoch",
                "set ",
                Setting("until_epoch", "null"),
            )
        self.per = per
        self.rescored = rescored
        self.until_epoch = until_epoch
        self._mean: Tensor | None = None

    def observe(self, ledger: LossLedger, outputs: Any) -> None:
        """Add the losses of a step, unless the later pass records the losses."""
        if not self.rescored:
            record(ledger, outputs)

    def finish(
        self,
        ledger: LossLedger,
        signals: Mapping[str, LossLedger],
        trainer: pl.Trainer,
        module: pl.LightningModule,
    ) -> None:
        """Score all live samples twice: with their photos and with a mean image."""
        if self.until_epoch is not None and trainer.current_epoch > self.until_epoch:
            return
        with measuring(trainer, module) as batches:
            for batch in batches():
                if self._mean is None and batch.regions is not None:
                    self._mean = _mean_region(trainer)
                rows, seen, sums, tokens = score(module, batch)
                blind = score(module, blinded(batch, self._mean))[1]
                gain = blind - seen
                if self.per == "sentence":
                    gain = gain * (batch.token_mask.sum(1) - 1)  # first token: not predicted
                signals[SIGNAL].add(rows, gain)
                if self.rescored:
                    ledger.add(rows, seen, sums, tokens)


def blinded(batch: Batch, mean: Tensor | None) -> Batch:
    """Return the batch without visual content.

    Args:
        batch: a batch with regions or pixels.
        mean: ``(D,)`` put into each region; None where there are pixels.
    """
    regions = None
    if batch.regions is not None and mean is not None:
        regions = mean.to(batch.regions).expand_as(batch.regions)
    images = None
    if batch.images is not None:  # as uint8, 0 would be black and not the mean colour
        images = torch.zeros_like(batch.images, dtype=torch.float32)
    return replace(batch, regions=regions, images=images)


def _mean_region(trainer: pl.Trainer) -> Tensor:
    """Mean feature vector of the regions of some uncurated photos, ``(D,) float32``.

    Photos are added up one by one and in the roster's order, so that the sum has the same bits
    however they are divided into batches, and each process makes it for itself, in host memory.

    Raises:
        ValueError: the data module has no ``eval_dataloader``.
    """
    datamodule = datamodule_of(trainer)
    build = getattr(datamodule, "eval_dataloader", None)
    if build is None:
        raise ValueError(
            "measuring the visual gain from cached features needs "
            "trainer.datamodule.eval_dataloader(roster, shared=False), which loads all photos of "
            "a roster: add this method, or use another score"
        )
    sums: dict[int, Tensor] = {}
    count = 0
    for batch in build(_mean_photos(datamodule.view.roster), shared=False):
        for place, row in enumerate(batch.photo_rows or ()):
            regions = batch.regions[place]
            if batch.region_mask is not None:
                regions = regions[batch.region_mask[place]]
            sums[row] = regions.double().sum(0)
            count += len(regions)
    total = torch.stack([sums[row] for row in sorted(sums)]).sum(0)
    return (total / max(count, 1)).float()


def _mean_photos(roster: Roster) -> Roster:
    """One sample for each photo that the mean image is computed from."""
    photos: dict[Path, Sample] = {}
    for sample in roster.samples:
        photos.setdefault(sample.image_path, sample)
    samples = list(photos.values())
    return build_roster("mean image", samples[:: -(-len(samples) // MEAN_PHOTOS)])


class VisualGain(Score):
    """Score that is the negative visual gain: the loss with the photo minus the loss without it.

    Most of a caption's loss is the language's: rare words and long sentences are hard whatever the
    photo shows. The difference is the photo's contribution, which is small or negative if caption
    and photo do not belong together.

    Needs `VisualGainProbe`, which measures it.

    Args:
        num_epochs: mean over so many last epochs, of those in which it was measured; measurements
            before a sample got its present caption or picture do not count.
    """

    name = "lack of visual gain"

    def __init__(self, *, num_epochs: PositiveInt = 1) -> None:
        if num_epochs < 1:
            raise ValueError(f"num_epochs must be at least 1: got {num_epochs}")
        self.num_epochs = num_epochs

    def scores(self, context: Context) -> Tensor:
        """Scores in nats (per token or sentence, as measured); NaN if unknown.

        Raises:
            ValueError: the run did not measure the visual gain.
        """
        if SIGNAL not in context.signals:
            raise ValueError(
                "score visual_gain needs the probe that measures it: set curation/probe=visual_gain"
            )
        gains = context.signals[SIGNAL]
        was_measured = ~gains.isnan().all(1)  # the probe may have stopped measuring
        measured = context.of_present_pairs(gains)[was_measured]
        if not len(measured):
            return torch.full((gains.shape[1],), torch.nan)
        return -measured[-self.num_epochs :].nanmean(0)
