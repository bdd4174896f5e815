"""Datamodule with loaders of training, validation and test samples, and the epochs' order.

An epoch is shuffled, batched, distributed over processes, and has a fixed length.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, Sampler

from captioning.config.ranges import Seed
from captioning.data.batches.base import AbstractBatchReader, Epoch, Stage
from captioning.data.batches.dataset import CaptionDataset, KnownTokens, open_readers
from captioning.data.batches.settings import LoaderSettings, Splits
from captioning.data.long_captions import LongCaptions, chosen
from captioning.data.roster import CurationView, Roster
from captioning.data.steps.add_pairs import original_samples
from captioning.data.token_table import TokenTable
from captioning.interfaces import AbstractTokenizer
from captioning.runtime.cores import num_cores
from captioning.runtime.sharing import rank_and_size
from captioning.types import Batch, Sample

MOST = 8  # more of them seldom help, and each holds batches in memory


def build_loader(
    dataset: CaptionDataset,
    sampler: Any,
    settings: LoaderSettings,
    *,
    reads_pixels: bool,
    num_processes: int = 1,
    pin: bool = False,
    keep: bool = False,
) -> DataLoader[Any]:
    """Build a data loader of complete batches.

    Args:
        dataset: makes batches.
        sampler: gives it the positions of each.
        settings: see `LoaderSettings`.
        reads_pixels: whether photos are read, for which ``"auto"`` starts processes.
        num_processes: training processes on this machine, which share its cores.
        pin: put batches into page-locked memory, from which a GPU copies beside its other work.
        keep: let the processes live after a pass, for a loader that is used again.
    """
    number = settings.num_workers
    if not isinstance(number, int):
        number = auto_workers(num_processes) if reads_pixels else 0
    options: dict[str, Any] = {}
    if number:
        options = {
            "prefetch_factor": settings.prefetch_factor,
            "multiprocessing_context": settings.multiprocessing_context,
            "persistent_workers": keep,
        }
    return DataLoader(
        dataset, sampler=sampler, batch_size=None, num_workers=number, pin_memory=pin, **options
    )


def auto_workers(num_processes: int = 1) -> int:
    """Return the loader workers per training process: its cores minus one, at most `MOST`."""
    return max(0, min(MOST, num_cores() // num_processes - 1))


def pins_memory(trainer: Any) -> bool:
    """Whether batches go to a GPU: the trainer's device, or without trainer any GPU."""
    if trainer is None:
        return torch.cuda.is_available()
    return trainer.strategy.root_device.type == "cuda"


Rewrite = Callable[[Sequence[Sample]], Sequence[Sample] | None]
DEFAULTS = LoaderSettings()
log = logging.getLogger(__name__)


class CaptionDataModule(pl.LightningDataModule):
    """Datamodule whose training samples come from `view`, which curation replaces each epoch.

    Args:
        splits: the rosters.
        tokenizer: shared with the model.
        readers: readers of further inputs beside tokens, by name; each sees the tensors of earlier
            ones.
        loader: sizes and lengths.
        seed: the run's seed; orders every epoch.
        tokens: tokens of the training roster's captions; None: captions become ids batch by batch.

    Raises:
        ValueError: tokens of another number of captions.

    Attributes:
        marks_sentences: whether training batches say which sentence each token belongs to, for a
            ledger by sentence; curation sets it where it wants one.
    """

    marks_sentences = False

    def __init__(
        self,
        *,
        splits: Splits,
        tokenizer: AbstractTokenizer,
        readers: Mapping[str, AbstractBatchReader],
        loader: LoaderSettings = DEFAULTS,
        seed: Seed = 0,
        tokens: TokenTable | None = None,
    ) -> None:
        super().__init__()
        if tokens is not None and len(tokens) != len(splits.train):
            raise ValueError(
                f"tokens must cover {len(splits.train)} captions, those of {splits.train.name}: "
                f"got {len(tokens)}"
            )
        self.known = (
            None if tokens is None else KnownTokens(table=tokens, samples=splits.train.samples)
        )
        self.long_captions: LongCaptions = chosen(loader.long_captions, tokenizer)
        self.splits = splits
        self.view = CurationView(roster=splits.train)
        self.tokenizer = tokenizer
        self.readers = dict(readers)
        self.loader, self.seed = loader, seed
        self._rewrite: Rewrite | None = None
        self._sample_by_row: dict[int, Sample] = {}  # of the epoch
        self._val_loader: tuple[Any, DataLoader[Any]] | None = None
        self._done: Mapping[str, int] = {}

    @property
    def train(self) -> Roster:
        """The training roster, before curation."""
        return self.splits.train

    @property
    def val(self) -> Roster:
        """The validation roster."""
        return self.splits.val

    @property
    def test(self) -> Roster | None:
        """The test roster, if there is one."""
        return self.splits.test

    @property
    def refuses_photos(self) -> str:
        """Why training cannot use photos outside the rosters; empty if it can."""
        return next(filter(None, (reader.refuses_photos for reader in self.readers.values())), "")

    def rewrite(self, rewrite: Rewrite) -> None:
        """Rebuild every training batch from the samples that ``rewrite`` returns.

        Args:
            rewrite: maps the batch's samples to those that are trained on instead, or to None: the
                batch stays as it is.

        Raises:
            ValueError: a reader depends on the epoch's captions (captions without photos, or
                contexts of other photos).
        """
        if any(reader.fixes_captions for reader in self.readers.values()):
            raise ValueError(
                "captions cannot be rewritten per batch if a model is trained on captions alone "
                "or on contexts of other photos: choose curation.amend.online=false"
            )
        self._rewrite = rewrite

    def on_after_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """Lightning hook: return the batch to train on."""
        # batches that probe the losses between two updates come here too, in eval mode
        module = None if self.trainer is None else self.trainer.lightning_module
        if self._rewrite is None or module is None or not module.training:
            return batch
        new = self._rewrite([self._sample_by_row[row] for row in batch.host.rows.tolist()])
        if new is None:
            return batch
        positions = Positions(range(len(new)), draw=batch.draw, filler=batch.filler)
        return self.dataset(tuple(new), "train")[positions].to(batch.rows.device)

    def state_dict(self) -> dict[str, int]:
        """Lightning hook: store how many batches of the current epoch are done."""
        trainer = self.trainer
        if trainer is None:
            return {}
        batches = trainer.fit_loop.epoch_loop.batch_progress.current.ready
        return {"epoch": trainer.current_epoch, "batches": batches}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Resume after the stored number of batches, or with the next epoch if it was complete."""
        self._done = dict(state_dict)

    @property
    def updates_per_epoch(self) -> int:
        """Number of batches per epoch, usually of the uncurated roster; unit of every schedule."""
        if self.loader.updates_per_epoch is not None:
            return self.loader.updates_per_epoch
        loader, samples = self.loader, self.train.samples
        samples = original_samples(self.train) if loader.original_updates else samples
        number = len({s.image_id for s in samples}) if loader.one_caption else len(samples)
        return -(-number // self.loader.batch_size)

    def train_dataloader(self) -> DataLoader[Any]:
        """Return shuffled batches of the view's samples."""
        samples = self.view.samples()
        self._sample_by_row = {sample.row: sample for sample in samples}
        rank, world_size = rank_and_size()
        _tell_shares(self.loader.batch_size, self.trainer)
        sampler = CaptionBatchSampler(
            [sample.image_id for sample in samples],
            lengths=[len(s.caption) for s in samples] if self.loader.like_lengths else None,
            batch_size=self.loader.batch_size,
            captions_per_image=self.loader.captions_per_image,
            one_caption=self.loader.one_caption,
            seed=self.seed,
            num_batches=self.updates_per_epoch if self.loader.fixed_updates else None,
            rank=rank,
            world_size=world_size,
        )
        if self.trainer is not None:
            # Lightning tells the epoch, too, but in a resumed run only after loader processes have
            # begun to make batches.
            sampler.set_epoch(self.trainer.current_epoch)
            if self._done.get("epoch") == self.trainer.current_epoch:
                sampler.first = self._done["batches"]
        return self._loader(self.dataset(samples, "train"), sampler)

    def probe_dataloader(self) -> DataLoader[Any]:
        """Return all samples of the view in order, to evaluate their losses again."""
        samples = self.view.samples()
        blocks = _own_blocks(len(samples), self.loader.batch_size, rank_and_size())
        return self._loader(self.dataset(samples, "probe"), blocks)

    def val_dataloader(self) -> DataLoader[Any]:
        """Return one sample per validation image; always the same loader with its workers."""
        made_for = (self.val, self.loader, rank_and_size())
        if self._val_loader is None or self._val_loader[0] != made_for:
            self._val_loader = (made_for, self.eval_dataloader(self.val, keep=True))
        return self._val_loader[1]

    def test_dataloader(self) -> DataLoader[Any]:
        """Return one sample per test image."""
        if self.test is None:
            raise ValueError("this dataset has no test split; set a test split in configs/data")
        return self.eval_dataloader(self.test)

    def eval_dataloader(
        self, roster: Roster, *, keep: bool = False, shared: bool = True
    ) -> DataLoader[Any]:
        """Return one sample per image of a roster, in order, for generating captions.

        Args:
            roster: whose images are captioned.
            keep: see `captioning.data.batches.datamodule.build_loader`.
            shared: whether the images are shared out over the processes; otherwise each process
                gets all of its roster, which may differ from the others'.
        """
        samples = tuple(roster.samples[rows[0]] for rows in roster.rows_by_image.values())
        processes = rank_and_size() if shared else (0, 1)
        blocks = _own_blocks(len(samples), self.loader.eval_batch_size, processes)
        return self._loader(self.dataset(samples, "eval"), blocks, keep=keep)

    def dataset(
        self,
        samples: Sequence[Sample],
        stage: Stage,
        *,
        overrides: Mapping[str, AbstractBatchReader] | None = None,
    ) -> CaptionDataset:
        """Build the dataset of batches for some samples.

        Args:
            samples: samples of the view, but for the stage ``"eval"``.
            stage: see `Epoch`.
            overrides: readers that replace those of the same names, or are added after them.
        """
        epoch = Epoch(
            stage=stage,
            samples=samples,
            roster=self.train,
            tokenizer=self.tokenizer,
            left_out=self.splits.left_out,
            has_photos=self.splits.train_has_photos or stage == "eval",
        )
        readers = {**self.readers, **(overrides or {})}
        opened, epoch = open_readers(readers.values(), epoch)
        return CaptionDataset(
            samples,
            tokenizer=self.tokenizer,
            readers=opened,
            has_photos=epoch.has_photos,
            known=None if stage == "eval" else self.known,
            long_captions=self.long_captions,
            marks_sentences=self.marks_sentences and stage != "eval",
        )

    @property
    def reads_pixels(self) -> bool:
        """Whether photos are read instead of cached features."""
        return any(reader.pictures == "pixels" for reader in self.readers.values())

    def _loader(
        self, dataset: CaptionDataset, sampler: Any, *, keep: bool = False
    ) -> DataLoader[Any]:
        return build_loader(
            dataset,
            sampler,
            self.loader,
            reads_pixels=self.reads_pixels and dataset.has_photos,
            num_processes=getattr(self.trainer, "num_devices", 1),
            pin=pins_memory(self.trainer),
            keep=keep,
        )


def _own_blocks(total: int, size: int, processes: tuple[int, int]) -> list[list[int]]:
    """Return this process's share of blocks of positions, with the same number for each process.

    All processes get the same number of blocks, as a model in shards is called by all at once.

    Args:
        total: number of positions.
        size: size of a block.
        processes: this one's number, and how many there are.
    """
    rank, world_size = processes
    size = max(1, min(size, -(-total // world_size)))
    blocks = [list(range(start, min(start + size, total))) for start in range(0, total, size)]
    turns = range(rank, len(blocks) + rank, world_size)
    return [blocks[turn % len(blocks)] for turn in turns]


def _tell_shares(batch_size: int, trainer: pl.Trainer | None) -> None:
    """Log once how batches are distributed if the shares are uneven."""
    rank, world_size = rank_and_size()
    if rank or (trainer is not None and trainer.current_epoch) or not batch_size % world_size:
        return
    if batch_size < world_size:
        log.warning(
            f"loader.batch_size={batch_size} is less than the {world_size} processes: "
            f"{world_size - batch_size} of them have no captions; choose a larger batch"
        )
        return
    least, more = divmod(batch_size, world_size)
    log.info(
        f"batches of {batch_size} captions: {more} of {world_size} processes take {least + 1} of "
        f"each, {world_size - more} take {least}"
    )


class Positions(list[int]):
    """Positions of a batch in the epoch's samples, with the key of its random numbers.

    Args:
        positions: positions in the epoch's samples.
        draw: seed, epoch and number of the batch; so draws depend neither on the loader process
            that makes the batch, nor on earlier draws.
        filler: see `captioning.types.Batch`.
        batch: all positions of a batch that several processes share; empty where there is one.
    """

    def __init__(
        self,
        positions: Iterable[int],
        *,
        draw: tuple[int, ...] | None,
        filler: bool = False,
        batch: Sequence[int] = (),
    ) -> None:
        super().__init__(positions)
        self.draw, self.filler, self.batch = draw, filler, batch

    def __reduce__(self) -> tuple[Any, ...]:
        kept = {"draw": self.draw, "filler": self.filler, "batch": self.batch}
        return partial(Positions, **kept), (list(self),)


WINDOW = 50  # batches that are sorted by length at a time
LENGTHS = 2**32 - 1  # in the seed of their order, where passes have their number


class CaptionBatchSampler(Sampler[list[int]]):
    """Batch sampler over an epoch's samples, with captions of one image side by side.

    Captions of one image in one batch share its features: they are projected once. An epoch's order
    depends on ``seed`` and ``epoch`` alone, so that a resumed run, or several processes together,
    see the same batches. Each takes its `share` of every batch; where there are fewer captions than
    processes, those without work get a caption that does not count.

    Args:
        image_ids: image of each sample of the epoch.
        lengths: lengths of each sample; batches then hold captions of like length. `WINDOW` batches
            of the shuffled order are sorted at a time, by the longest caption of an image in them,
            and come in a shuffled order again.
        batch_size: captions a batch over all processes.
        captions_per_image: maximum number of captions of an image in a row; 1 shuffles freely.
        one_caption: each pass takes one caption of each image, drawn again in each pass; False: all
            captions.
        seed: the run's seed.
        num_batches: batches an epoch; None means once through the samples. A larger number
            continues with a second shuffle, so that a set that curation has shrunk still gives the
            same number of updates.
        rank, world_size: this process's share.

    Attributes:
        first: number of the batch with which the next pass begins, its length being the same.

    Raises:
        ValueError: sizes that are not positive.
    """

    def __init__(
        self,
        image_ids: Sequence[str],
        *,
        lengths: Sequence[int] | None = None,
        batch_size: int,
        captions_per_image: int = 5,
        one_caption: bool = False,
        seed: int = 0,
        num_batches: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if batch_size < 1 or captions_per_image < 1:
            raise ValueError(
                "batch_size and captions_per_image must be positive: "
                f"got {batch_size} and {captions_per_image}"
            )
        self.batch_size = batch_size
        self.captions_per_image, self.one_caption = captions_per_image, one_caption
        self.seed = seed
        self.epoch = self.first = 0
        self.rank, self.world_size = rank, world_size
        numbers: dict[str, int] = {}
        images = [numbers.setdefault(image_id, len(numbers)) for image_id in image_ids]
        self._images = np.asarray(images)
        self._lengths = None if lengths is None else np.asarray(lengths)
        self._positions = np.argsort(images, kind="stable")  # image by image
        self._captions = np.bincount(images)  # of each image
        self._num_samples = len(numbers) if one_caption else len(image_ids)
        self._num_batches = num_batches or -(-self._num_samples // batch_size)
        self._fills_batches = num_batches is not None

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; Lightning calls this before each epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self._num_batches

    def _pass(self, number: int) -> np.ndarray:
        """Return the order of positions in the epoch's ``number``-th pass."""
        rng = np.random.default_rng((self.seed, self.epoch, number))
        order = self._positions.copy()
        # images with equally many captions that follow each other are shuffled in one call
        last = np.flatnonzero(np.diff(self._captions, append=0))
        ends = np.cumsum(self._captions)[last]
        for images, size in zip(np.split(order, ends[:-1]), self._captions[last], strict=True):
            captions = images.reshape(-1, size)
            rng.permuted(captions, axis=1, out=captions)
        starts, sizes = _chunks(self._captions, self.captions_per_image)
        if self.one_caption:
            starts = np.cumsum(self._captions) - self._captions
            sizes = np.ones_like(starts)
        drawn = rng.permutation(len(starts))
        return order[_ranges(starts[drawn], sizes[drawn])]

    def __iter__(self) -> Iterator[list[int]]:
        num_positions = (
            self._num_batches * self.batch_size if self._fills_batches else self._num_samples
        )
        passes = -(-num_positions // self._num_samples)
        order = np.concatenate([self._pass(number) for number in range(passes)])[:num_positions]
        if self._lengths is not None:
            order = self._by_length(order, self._lengths)
        starts = range(0, len(order), self.batch_size)
        for number, start in list(enumerate(starts))[self.first :]:
            batch = order[start : start + self.batch_size]
            own = batch[share(len(batch), self.rank, self.world_size)].tolist()
            draw = (self.seed, self.epoch, number)
            shared = batch.tolist() if self.world_size > 1 else ()
            yield Positions(own or shared[:1], draw=draw, filler=not own, batch=shared)

    def _by_length(self, order: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Sort positions into batches of similar length, window by window."""
        rng = np.random.default_rng((self.seed, self.epoch, LENGTHS))
        size, sorted_windows = self.batch_size, []
        for start in range(0, len(order), size * WINDOW):
            window = order[start : start + size * WINDOW]
            images = self._images[window]
            runs = np.cumsum(np.diff(images, prepend=images[0]) != 0)
            longest = np.zeros(runs[-1] + 1, np.int64)
            np.maximum.at(longest, runs, lengths[window])
            window = window[np.argsort(longest[runs], kind="stable")]
            # An epoch's last batch may be smaller, and stays the last.
            full, rest = np.split(window, [len(window) // size * size])
            batches = full.reshape(-1, size)
            sorted_windows += [*batches[rng.permutation(len(batches))], rest]
        return np.concatenate(sorted_windows)


def _chunks(lengths: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Split consecutive ranges into pieces of at most ``size``; return starts and sizes."""
    counts = -(-lengths // size)
    before = _ranges(np.zeros_like(counts), counts) * size  # of the same range
    starts = np.repeat(np.cumsum(lengths) - lengths, counts) + before
    return starts, np.minimum(np.repeat(lengths, counts) - before, size)


def _ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Concatenate ranges given by starts and sizes."""
    ends = np.cumsum(sizes)
    return np.repeat(starts - ends + sizes, sizes) + np.arange(sizes.sum())


def share(number: int, rank: int, world_size: int) -> slice:
    """Return the slice of ``number`` items for a process; the first processes get one more."""
    least, more = divmod(number, world_size)
    start = rank * least + min(rank, more)
    return slice(start, start + least + (rank < more))
