"""Training of the joint space: the loss by brute force, the batches, and that it learns."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig

from captioning.config.compose import compose_config
from captioning.training import joint_heads as training
from captioning.training.joint_heads import (
    HeadsTraining,
    Pairs,
    batches,
    contrastive_loss,
    fit,
    join_pairs,
    score,
    train_joint_space,
)
from captioning.vision.joint_space import JointSpace, load_heads
from tests.task_calls import call


def unit(rows: int, size: int, seed: int) -> torch.Tensor:
    values = torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))
    return values / values.norm(dim=1, keepdim=True)


@given(st.integers(0, 1000), st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_the_loss_is_that_of_every_pair_counted_out(seed: int, index: list[int]) -> None:
    images, captions = unit(4, 3, seed), unit(len(index), 3, seed + 1)
    loss = contrastive_loss(images, captions, torch.tensor(index), torch.tensor(5.0))
    weight = (5 * captions @ images.T).exp().tolist()
    total = 0.0
    for row, photo in enumerate(index):
        right = weight[row][photo]
        total -= math.log(right / sum(weight[row]))
        wrong = sum(weight[other][photo] for other in range(len(index)) if index[other] != photo)
        total -= math.log(right / (right + wrong))
    assert loss.item() == pytest.approx(total / len(index) / 2, rel=1e-4, abs=1e-5)


def test_a_photo_is_drawn_once_a_pass_with_different_captions() -> None:
    index = torch.tensor([2, 0, 0, 1, 2, 2, 3, 4, 4, 0])
    settings = {"batch_size": 2, "captions_per_image": 2}
    generator = torch.Generator().manual_seed(0)
    drawn = set()
    for _ in range(20):
        photos = []
        for photo_batch, captions, place in batches(index, generator=generator, **settings):
            photos += photo_batch.tolist()
            assert torch.equal(index[captions], photo_batch[place])
            assert len(set(captions.tolist())) == len(captions)
            counts = torch.bincount(place, minlength=len(photo_batch))
            assert counts.tolist() == [min(2, int((index == photo).sum())) for photo in photo_batch]
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
    settings = HeadsTraining(
        num_epochs=15,
        batch_size=50,
        captions_per_image=1,
        lr=0.003,
        weight_decay=0.01,
        ema_decay=0.9,
        val_every=15,
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
    for weights, other in zip(trained.parameters(), again.parameters(), strict=True):
        assert torch.equal(weights, other)


class Lengths:
    """A sentence is its length and its number of words."""

    dim, identity = 2, "lengths"

    def embed_texts(self, texts: Sequence[str]) -> torch.Tensor:
        return torch.tensor([[len(text), len(text.split())] for text in texts]).float()


def test_pairs_of_several_sets_keep_their_photos() -> None:
    parts = [pairs(3, 1), pairs(2, 2), pairs(4, 3)]
    joined = join_pairs(parts)
    assert joined.image_index.tolist() == [n for n in range(9) for _ in range(2)]
    for part, start in zip(parts, (0, 3, 5), strict=True):
        captions = slice(2 * start, 2 * start + len(part.sentences))
        assert torch.equal(joined.sentences[captions], part.sentences)
        pooled = joined.pooled[joined.image_index[captions]]
        assert torch.equal(pooled, part.pooled[part.image_index])


def small_run(
    repository: Path,
    cache: Path,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    extra: Sequence[str] = (),
) -> dict[str, Any]:
    def build(config: DictConfig, **settings: Any) -> Any:
        sentences = "sentence" in config.get("_target_")
        return Lengths() if sentences else real(config, **settings)

    real = training.build_part
    monkeypatch.setattr(training, "build_part", build)
    overrides = [
        "data=miniworld_tiny",
        "features.backbone.name=test_resnet.r160_in1k",
        "features.backbone.weights=random",
        "features.backbone.image_size=64",
        f"paths.cache={cache}",
        "first_images=12",
        "limit_captions=2",
        "heads.width=8",
        "heads.size=4",
        "training.num_epochs=2",
        "training.batch_size=6",
        f"out={out}",
        *extra,
    ]
    config = compose_config("joint_space", overrides)
    return call(train_joint_space, config)


def test_a_run_writes_heads_and_their_card(
    repository: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "deep" / "heads.safetensors"
    card = small_run(repository, cache, out, monkeypatch)
    assert card == json.loads(out.with_suffix(".json").read_text())
    assert (card["data"]["train"]["photos"], card["data"]["train"]["captions"]) == (12, 24)
    assert card["data"]["val"]["captions"] > 24
    assert card["training"]["seed"] == 0
    assert set(card["test"]) >= {"text-to-image R@10", "image-to-text R@1", "AUC"}
    heads, trained_over = load_heads(out)
    assert heads.settings == card["heads"]
    assert trained_over == {"backbone": card["backbone"], "sentences": "lengths"}


def test_another_data_set_is_trained_on_in_part_and_tested_on_the_rest(
    repository: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ["data@more=miniworld_tiny", "+more.note=not in data", "num_more=8"]
    card = small_run(repository, cache, tmp_path / "heads.safetensors", monkeypatch, more)
    assert card["data"]["train_more"]["photos"] == 8
    assert card["data"]["test_more"]["photos"] == 4
    assert set(card["test_more"]) == set(card["test"])
    more[2] = "num_more=12"
    with pytest.raises(ValueError, match="lower num_more"):
        small_run(repository, cache, tmp_path / "heads.safetensors", monkeypatch, more)
