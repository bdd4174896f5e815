"""Training of the joint space: the loss by brute force, the batches, and that it learns."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from captioning.training.joint_space import Pairs, batches, contrastive_loss, fit, score
from captioning.vision.joint_space import JointSpace


def unit(rows: int, size: int, seed: int) -> torch.Tensor:
    values = torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))
    return values / values.norm(dim=1, keepdim=True)


@given(st.integers(0, 1000), st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_the_loss_is_that_of_every_pair_counted_out(seed: int, index: list[int]) -> None:
    images, captions = unit(4, 3, seed), unit(len(index), 3, seed + 1)
    found = contrastive_loss(images, captions, torch.tensor(index), torch.tensor(5.0))
    weight = (5 * captions @ images.T).exp().tolist()
    total = 0.0
    for row, own in enumerate(index):
        right = weight[row][own]
        total -= math.log(right / sum(weight[row]))
        wrong = sum(weight[other][own] for other in range(len(index)) if index[other] != own)
        total -= math.log(right / (right + wrong))
    assert found.item() == pytest.approx(total / len(index) / 2, rel=1e-4, abs=1e-5)


def test_a_photo_is_drawn_once_a_pass_with_different_captions() -> None:
    index = torch.tensor([2, 0, 0, 1, 2, 2, 3, 4, 4, 0])
    settings = {"batch_size": 2, "captions_per_image": 2}
    generator = torch.Generator().manual_seed(0)
    drawn = set()
    for _ in range(20):
        photos = []
        for some, captions, place in batches(index, generator=generator, **settings):
            photos += some.tolist()
            assert torch.equal(index[captions], some[place])
            assert len(set(captions.tolist())) == len(captions)
            counts = torch.bincount(place, minlength=len(some))
            assert counts.tolist() == [min(2, int((index == photo).sum())) for photo in some]
            drawn |= set(captions.tolist())
        assert sorted(photos) == [0, 1, 2, 3, 4]
    assert drawn == set(range(10))


def test_a_small_last_batch_is_left_out() -> None:
    generator = torch.Generator().manual_seed(0)
    settings = {"batch_size": 4, "captions_per_image": 1, "generator": generator}
    assert [len(photos) for photos, *_ in batches(torch.arange(9), **settings)] == [4, 4]
    assert [len(photos) for photos, *_ in batches(torch.arange(10), **settings)] == [4, 4, 2]
    assert [len(photos) for photos, *_ in batches(torch.arange(2), **settings)] == [2]


def pairs(number: int, seed: int) -> Pairs:
    """Photos and captions that share a hidden cause."""
    generator = torch.Generator().manual_seed(seed)
    cause = torch.randn(number, 4, generator=generator)
    index = torch.arange(number).repeat_interleave(2)
    mixing = torch.randn(2, 4, 12, generator=torch.Generator().manual_seed(0))
    noise = 0.1 * torch.randn(2 * number, 12, generator=generator)
    return Pairs(
        pooled=(cause @ mixing[0]).half(),
        sentences=cause[index] @ mixing[1] + noise,
        image_index=index,
    )


def test_heads_learn_and_the_same_seed_gives_the_same_heads() -> None:
    settings = OmegaConf.create(
        {
            "num_epochs": 15,
            "batch_size": 50,
            "captions_per_image": 1,
            "lr": 0.003,
            "weight_decay": 0.01,
            "ema_decay": 0.9,
            "val_every": 15,
        }
    )
    train, val = pairs(200, 1), pairs(100, 2)
    results = []
    for _ in range(2):
        torch.manual_seed(0)
        heads = JointSpace(
            image_size=12, sentence_size=12, width=32, size=8, dropout=0.1, pooling="mean"
        )
        before = score(heads, val)
        results.append(fit(heads, train, val, settings=settings, seed=3))
    (trained, history), (again, _) = results
    assert [entry["epoch"] for entry in history] == [15]
    assert history[-1]["text-to-image R@5"] > 0.6 > 3 * before["text-to-image R@5"]
    assert history[-1]["AUC"] > 0.95
    assert history[-1] == pytest.approx(history[-1] | score(trained, val))
    for one, other in zip(trained.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
