"""Loaders of the training, validation and test samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch.distributed as dist
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from captioning.data.batches.dataset import CaptionDataset, Extras
from captioning.data.batches.nearest_contexts import ContextIndex
from captioning.data.batches.sampler import CaptionBatchSampler
from captioning.data.features.build import FeatureStore
from captioning.data.roster import CurationView, Roster
from captioning.data.steps.shares import num_own
from captioning.interfaces import AbstractTokenizer
from captioning.ranges import NonNegativeInt, PositiveInt, Seed
from captioning.types import Batch, Control, Sample

Rewrite = Callable[[Sequence[Sample]], Sequence[Sample] | None]


class CaptionDataModule(pl.LightningDataModule):
    """The epoch's training samples come from `view`, which curation replaces between epochs.

    Args:
        train, val, test: rosters; ``test`` may be None.
        tokenizer: shared with the model.
        features: cached features of all photos, or None to load pixels.
        batch_size: captions a training batch, over all processes.
        captions_per_image: captions of an image that stand together in a batch.
        eval_batch_size: images a batch when captions are generated.
        seed: of the run; orders every epoch.
        fixed_updates: keep the number of batches an epoch at that of the whole roster when
            curation removes samples (comparable numbers of updates). False: the epoch shrinks with
            the set, as in the paper.
        own_updates: an epoch has as many batches as without pairs that were added
            (`captioning.data.steps.shares`), which then change no schedule.
        num_workers: loader processes; 0 is best with cached features.
        train_transform, eval_transform: pixels to tensors, when there are no features.
        extend_features: features of these photos too (a sample by path), in a store that also
            holds the former ones; None where none can be computed.
        controls: what captions are asked for, from the samples, such as
            `captioning.data.batches.controls.CaptionControls`; None where nothing is.
        texts: for training on captions alone, see `CaptionDataset`; the training samples' photos
            are then never looked at.
        contexts: contexts of other photos for models that learn from them; None for none.
        lenders: captions that lend contexts and are not trained on, see `ContextIndex.of_epoch`.

    Raises:
        ValueError: ``own_updates`` for epochs that may shrink.
    """

    def __init__(
        self,
        *,
        train: Roster,
        val: Roster,
        test: Roster | None = None,
        tokenizer: AbstractTokenizer,
        features: FeatureStore | None = None,
        batch_size: PositiveInt = 125,
        captions_per_image: PositiveInt = 5,
        eval_batch_size: PositiveInt = 50,
        seed: Seed = 0,
        fixed_updates: bool = True,
        own_updates: bool = False,
        num_workers: NonNegativeInt = 0,
        train_transform: Callable[[Image.Image], Tensor] | None = None,
        eval_transform: Callable[[Image.Image], Tensor] | None = None,
        extend_features: Callable[[Mapping[Path, Sample]], FeatureStore] | None = None,
        controls: Callable[[Sequence[Sample]], Sequence[Control]] | None = None,
        texts: Extras | None = None,
        contexts: ContextIndex | None = None,
        lenders: Sequence[Sample] = (),
    ) -> None:
        super().__init__()
        self.train, self.val, self.test = train, val, test
        self.view = CurationView(roster=train)
        self.tokenizer = tokenizer
        self.features = features
        self.batch_size = batch_size
        self.captions_per_image = captions_per_image
        self.eval_batch_size = eval_batch_size
        self.seed = seed
        if own_updates and not fixed_updates:
            raise ValueError("own_updates=true needs fixed_updates=true: epochs must not shrink")
        self.fixed_updates, self.own_updates = fixed_updates, own_updates
        self.num_workers = num_workers
        self.train_transform, self.eval_transform = train_transform, eval_transform
        self._extend_features, self.texts = extend_features, texts
        pictured = (None if texts else train, val, test)
        rosters = [roster for roster in pictured if roster is not None]
        self.contexts, self.lenders = contexts, lenders
        self.controls = controls
        self._pictured = {s.image_path: s for roster in rosters for s in roster.samples}
        self._rewrite: Rewrite | None = None
        self._of_row: dict[int, Sample] = {}  # of the epoch

    @property
    def refuses_photos(self) -> str:
        """Why no other photos can be trained on than those of the rosters; empty if they can."""
        if self.texts is not None:
            return "it is trained on captions alone, without photos: choose corpus=none"
        if self.features is None or self._extend_features is not None:
            return ""
        return (
            f"the features in {self.features.folder} were imported, and there is no backbone to "
            "compute those of other photos: choose features= with a backbone, or features=none"
        )

    def rewrite(self, rewrite: Rewrite) -> None:
        """Let every training batch be made anew from what ``rewrite`` gives for its samples.

        Args:
            rewrite: the batch's samples to those that are trained on instead, or to None: the
                batch stays as it is.

        Raises:
            ValueError: captions without photos, or contexts, which are of the epoch's captions.
        """
        if self.texts is not None or self.contexts is not None:
            raise ValueError(
                "captions cannot be written anew in each batch where a model learns from captions "
                "alone or from contexts of other photos: choose curation.amend.online=false"
            )
        self._rewrite = rewrite

    def on_after_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """Lightning's hook: the batch that is trained on."""
        # batches for a look between two updates come here too: those are seen in eval mode
        if self._rewrite is None or not self.trainer.lightning_module.training:
            return batch
        new = self._rewrite([self._of_row[row] for row in batch.rows.tolist()])
        if new is None:
            return batch
        made = self._train_dataset(tuple(new), self.train_transform)[list(range(len(new)))]
        return made.to(batch.rows.device)

    @property
    def updates_per_epoch(self) -> int:
        """Batches of an epoch over the uncurated roster; the unit of every schedule."""
        number = num_own(self.train) if self.own_updates else len(self.train)
        return -(-number // self.batch_size)

    def train_dataloader(self) -> DataLoader[Any]:
        """Shuffled batches of the view's samples."""
        samples = self.view.samples()
        self._of_row = {sample.row: sample for sample in samples}
        rank, world_size = _process()
        sampler = CaptionBatchSampler(
            [sample.image_id for sample in samples],
            batch_size=self.batch_size,
            captions_per_image=self.captions_per_image,
            seed=self.seed,
            num_batches=self.updates_per_epoch if self.fixed_updates else None,
            rank=rank,
            world_size=world_size,
        )
        extras = None
        if self.contexts is not None:
            self._check_slots(self.contexts)
            extras = self.contexts.of_epoch(self.train, samples, self.tokenizer, self.lenders)
        return self._loader(self._train_dataset(samples, self.train_transform, extras), sampler)

    def _check_slots(self, contexts: ContextIndex) -> None:
        if contexts.slots == "regions" and getattr(self.features, "kind", None) != "regions":
            raise ValueError(
                "model.contexts.slots=regions needs features of the annotated boxes: choose "
                "features=efficientnet_lite0_regions, or model.contexts.slots=captions"
            )

    def probe_dataloader(self) -> DataLoader[Any]:
        """All of the view's samples in order, for a second look at their losses."""
        samples = self.view.samples()
        rank, world_size = _process()
        blocks = _blocks(len(samples), self.batch_size)[rank::world_size]
        return self._loader(self._train_dataset(samples, self.eval_transform), blocks)

    def val_dataloader(self) -> DataLoader[Any]:
        """One sample per validation image."""
        return self.eval_dataloader(self.val)

    def test_dataloader(self) -> DataLoader[Any]:
        """One sample per test image."""
        if self.test is None:
            raise ValueError("this data set has no test split; name one in configs/data")
        return self.eval_dataloader(self.test)

    def eval_dataloader(self, roster: Roster) -> DataLoader[Any]:
        """One sample per image of a roster, in order; for generating captions."""
        samples = tuple(roster.samples[rows[0]] for rows in roster.rows_by_image.values())
        rank, world_size = _process()
        blocks = _blocks(len(samples), self.eval_batch_size)[rank::world_size]
        return self._loader(self._dataset(samples, self.eval_transform), blocks)

    def _train_dataset(
        self, samples: tuple[Sample, ...], transform: Any, extras: Extras | None = None
    ) -> CaptionDataset:
        """Of samples of the view: as they are trained on."""
        if self.texts is None:
            return self._dataset(samples, transform, extras)
        self.texts(samples)  # all at once, which takes less time than batch by batch
        return CaptionDataset(
            samples, tokenizer=self.tokenizer, features=None, extras=self.texts, photos=False
        )

    def _dataset(
        self, samples: tuple[Sample, ...], transform: Any, extras: Extras | None = None
    ) -> CaptionDataset:
        self._look_at_new(samples)
        return CaptionDataset(
            samples,
            tokenizer=self.tokenizer,
            features=self.features,
            transform=transform,
            extras=extras,
            controls=None if self.controls is None else self.controls(samples),
        )

    def _look_at_new(self, samples: tuple[Sample, ...]) -> None:
        """Compute the features of photos that curation has put in."""
        if self.features is None or self._extend_features is None:
            return
        new = {s.image_path: s for s in samples if s.image_path not in self._pictured}
        if new:
            self._pictured |= new
            self.features = self._extend_features(self._pictured)

    def _loader(self, dataset: CaptionDataset, sampler: Any) -> DataLoader[Any]:
        return DataLoader(dataset, sampler=sampler, batch_size=None, num_workers=self.num_workers)


def _blocks(total: int, size: int) -> list[list[int]]:
    return [list(range(start, min(start + size, total))) for start in range(0, total, size)]


def _process() -> tuple[int, int]:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
