"""The order of an epoch."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from captioning.data.batches.sampler import CaptionBatchSampler

IMAGES = [f"i{number // 5}" for number in range(60)]


def order(**settings) -> list[list[int]]:
    epoch = settings.pop("epoch", 0)
    images = settings.pop("images", IMAGES)
    sampler = CaptionBatchSampler(images, **{"batch_size": 10, **settings})
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    return batches


def test_every_sample_comes_once_and_captions_of_an_image_stand_together() -> None:
    batches = order(captions_per_image=5)
    assert sorted(itertools.chain(*batches)) == list(range(60))
    assert all(len({IMAGES[position] for position in batch}) == 2 for batch in batches)


def test_single_captions_are_shuffled_freely() -> None:
    batches = order(captions_per_image=1)
    assert sorted(itertools.chain(*batches)) == list(range(60))
    assert sum(len({IMAGES[position] for position in batch}) for batch in batches) > 6 * 5


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    assert order(epoch=3, seed=1) == order(epoch=3, seed=1)
    assert order(epoch=3, seed=1) != order(epoch=4, seed=1)
    assert order(epoch=3, seed=1) != order(epoch=3, seed=2)


def test_a_shrunken_set_fills_the_epoch_with_a_second_shuffle() -> None:
    batches = order(images=IMAGES[:45], num_batches=6)
    assert [len(batch) for batch in batches] == [10] * 6
    counts = Counter(itertools.chain(*batches))
    assert set(counts) == set(range(45))
    assert sorted(counts.values()) == [1] * 30 + [2] * 15


def test_the_last_batch_may_be_smaller_without_a_fixed_number() -> None:
    assert [len(batch) for batch in order(images=IMAGES[:45])] == [10, 10, 10, 10, 5]


def test_processes_share_each_batch_without_overlap() -> None:
    batches = order(num_batches=6)
    shares = [order(num_batches=6, rank=rank, world_size=2) for rank in range(2)]
    assert [one + other for one, other in zip(*shares, strict=True)] == batches


def test_sizes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        order(batch_size=0)
    with pytest.raises(ValueError, match="multiple of the number of processes"):
        order(batch_size=9, world_size=2)
