"""The order of an epoch."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from captioning.data.batches.datamodule import CaptionBatchSampler

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


def test_an_epoch_may_have_one_caption_of_each_image_however_many_it_has() -> None:
    images, single = [*IMAGES, "picture"], {"one_caption": True, "captions_per_image": 1}
    epochs = [list(itertools.chain(*order(images=images, epoch=n, **single))) for n in range(40)]
    for positions in epochs:
        assert Counter(images[position] for position in positions) == Counter(set(images))
    assert set(itertools.chain(*epochs)) == set(range(61))
    batches = order(num_batches=3, **single)  # 12 images
    assert [len(batch) for batch in batches] == [10] * 3
    counts = Counter(IMAGES[position] for position in itertools.chain(*batches))
    assert sorted(counts.values()) == [2] * 6 + [3] * 6


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


@pytest.mark.parametrize("each", [1, 5])
def test_batches_of_like_length_hold_every_sample_once(each: int) -> None:
    lengths = np.random.default_rng(0).integers(1, 100, 60).tolist()
    settings = {"lengths": lengths, "captions_per_image": each, "seed": 1}
    batches, plain = order(**settings), order(captions_per_image=each, seed=1)
    assert sorted(itertools.chain(*batches)) == list(range(60))

    def spread(batches: list[list[int]]) -> float:
        # a photo's captions stay together, so it counts with its longest
        longest = [max(lengths[n] for n in range(60) if n // each == i) for i in range(60 // each)]
        return np.mean([np.ptp([longest[n // each] for n in batch]) for batch in batches])

    assert spread(batches) < spread(plain) / 2
    means = [np.mean([lengths[n] for n in batch]) for batch in batches]
    assert means != sorted(means)  # from short to long would be a curriculum
    assert order(**settings) == batches != order(epoch=1, **settings)
    if each == 5:
        assert all(len({IMAGES[position] for position in batch}) == 2 for batch in batches)


def test_batches_of_like_length_leave_the_small_one_last() -> None:
    batches = order(images=IMAGES[:45], lengths=range(45), captions_per_image=1)
    assert [len(batch) for batch in batches] == [10, 10, 10, 10, 5]
    resumed = CaptionBatchSampler(
        IMAGES[:45], lengths=range(45), batch_size=10, captions_per_image=1
    )
    resumed.first = 3
    assert list(resumed) == batches[3:]


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_processes_share_each_batch_without_overlap(world_size: int) -> None:
    batches = order(images=IMAGES[:45])
    shares = [
        order(images=IMAGES[:45], rank=rank, world_size=world_size) for rank in range(world_size)
    ]
    joined = [list(itertools.chain(*parts)) for parts in zip(*shares, strict=True)]
    assert joined == batches
    for parts in zip(*shares, strict=True):
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_process_without_captions_takes_one_that_does_not_count() -> None:
    samplers = [
        CaptionBatchSampler(IMAGES[:21], batch_size=10, rank=rank, world_size=3)
        for rank in range(3)
    ]
    lasts = [list(sampler)[-1] for sampler in samplers]
    assert [last.filler for last in lasts] == [False, True, True]
    assert lasts[0] == lasts[1] == lasts[2]
    # as loader processes get them
    build, arguments = lasts[1].__reduce__()
    copy = build(*arguments)
    assert (copy.filler, copy.draw, copy.batch) == (True, lasts[1].draw, lasts[0])


@pytest.mark.parametrize("captions_per_image", [1, 2, 5])
def test_captions_are_shuffled_image_by_image_and_then_in_chunks(captions_per_image: int) -> None:
    images = [f"i{number % 40}" for number in range(200)] + ["i3", "i4", "i9", "one", "two", "i3"]
    sampler = CaptionBatchSampler(
        images, batch_size=10, captions_per_image=captions_per_image, seed=1
    )
    rng = np.random.default_rng((1, 0, 0))
    chunks = []
    for image in dict.fromkeys(images):
        captions = [position for position, other in enumerate(images) if other == image]
        shuffled = rng.permutation(captions).tolist()
        starts = range(0, len(shuffled), captions_per_image)
        chunks += [shuffled[start : start + captions_per_image] for start in starts]
    drawn = rng.permutation(len(chunks)).tolist()
    expected = list(itertools.chain.from_iterable(chunks[number] for number in drawn))
    assert list(itertools.chain(*sampler)) == expected


def test_sizes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        order(batch_size=0)
