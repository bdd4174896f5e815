"""The order of an epoch: shuffled, batched, shared out over processes, and of a fixed length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from torch.utils.data import Sampler


class Positions(list[int]):
    """Positions of a batch in the epoch's samples, with the key of what is drawn for it.

    Args:
        positions: in the epoch's samples.
        draw: seed, epoch and number of the batch; so draws depend neither on the loader process
            that makes the batch, nor on what was drawn before it.
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


class CaptionBatchSampler(Sampler[list[int]]):
    """Batches of positions in an epoch's sample list, captions of one image side by side.

    Captions of one image in one batch share its features: they are projected once. An epoch's
    order depends on ``seed`` and ``epoch`` alone, so that a resumed run sees the same batches, and
    several processes together those of one. Each takes its `share` of every batch; where there are
    fewer captions than processes, those without work get a caption that does not count.

    Args:
        image_ids: image of each sample of the epoch.
        batch_size: captions a batch over all processes.
        captions_per_image: at most so many captions of an image stand together; 1 shuffles freely.
        one_caption: a pass takes one caption of each image, drawn anew in each; False: all.
        seed: of the run.
        num_batches: batches an epoch; None means once through the samples. A larger number goes
            on with a second shuffle, so that a set that curation has shrunk still gives the same
            number of updates.
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
        self._positions = np.argsort(images, kind="stable")  # image by image
        self._captions = np.bincount(images)  # of each image
        self._num_samples = len(numbers) if one_caption else len(image_ids)
        self._num_batches = num_batches or -(-self._num_samples // batch_size)
        self._fills_batches = num_batches is not None

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning before each epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self._num_batches

    def _pass(self, number: int) -> np.ndarray:
        """Positions in the order of the epoch's ``number``-th pass, each once."""
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
        starts = range(0, len(order), self.batch_size)
        for number, start in list(enumerate(starts))[self.first :]:
            batch = order[start : start + self.batch_size]
            own = batch[share(len(batch), self.rank, self.world_size)].tolist()
            draw = (self.seed, self.epoch, number)
            shared = batch.tolist() if self.world_size > 1 else ()
            yield Positions(own or shared[:1], draw=draw, filler=not own, batch=shared)


def _chunks(lengths: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and sizes of the pieces, at most ``size`` long, of ranges that follow each other."""
    counts = -(-lengths // size)
    before = _ranges(np.zeros_like(counts), counts) * size  # of the same range
    starts = np.repeat(np.cumsum(lengths) - lengths, counts) + before
    return starts, np.minimum(np.repeat(lengths, counts) - before, size)


def _ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Numbers from each start on, so many."""
    ends = np.cumsum(sizes)
    return np.repeat(starts - ends + sizes, sizes) + np.arange(sizes.sum())


def share(number: int, rank: int, world_size: int) -> slice:
    """The part of ``number`` things that a process takes; the first ones take one more."""
    least, more = divmod(number, world_size)
    start = rank * least + min(rank, more)
    return slice(start, start + least + (rank < more))
