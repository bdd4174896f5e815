"""Retrieval scores against ranks counted one by one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from captioning.training.joint_heads import retrieval_scores


def unit(seed: int, rows: int) -> torch.Tensor:
    # Few different directions, so that ties are common.
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-1, 2, (rows, 2), generator=generator).double()
    values[(values == 0).all(1)] = 1.0
    return values / values.norm(dim=1, keepdim=True)


@given(st.integers(0, 10_000), st.integers(2, 15), st.integers(1, 3))
def test_recall_is_the_share_of_ranks_counted_one_by_one(seed, num_images, each) -> None:
    images, captions = unit(seed, num_images), unit(seed + 1, num_images * each)
    index = torch.arange(num_images).repeat(each)
    scores = retrieval_scores(images, captions, index)
    near = (captions @ images.T).tolist()
    for k in (1, 5, 10):
        hits = 0
        for row, matched in enumerate(index.tolist()):
            before = [
                j for j in range(num_images) if j != matched and near[row][j] >= near[row][matched]
            ]
            hits += len(before) < k
        assert scores[f"text-to-image R@{k}"] == pytest.approx(hits / len(index))
        hits = 0
        for image in range(num_images):
            matched = [row for row in range(len(index)) if index[row] == image]
            best = max(near[row][image] for row in matched)
            before = [
                row for row in range(len(index)) if row not in matched and near[row][image] >= best
            ]
            hits += len(before) < k
        assert scores[f"image-to-text R@{k}"] == pytest.approx(hits / num_images)


def test_a_perfect_space_and_one_that_knows_nothing() -> None:
    images = torch.eye(20)
    perfect = retrieval_scores(images, images.repeat(2, 1), torch.arange(20).repeat(2))
    assert set(perfect.values()) == {1.0}
    same = torch.ones(20, 1)
    nothing = retrieval_scores(same, same, torch.arange(20))
    assert nothing.pop("AUC") == 0.5
    assert set(nothing.values()) == {0.0}


def test_order_of_images_and_captions_changes_no_recall() -> None:
    images, captions = unit(1, 12), unit(2, 36)
    index, order = torch.arange(12).repeat(3), torch.arange(36).flip(0)
    scores = retrieval_scores(images, captions, index)
    turned = retrieval_scores(images.flip(0), captions[order], 11 - index[order])
    for name in scores.keys() - {"AUC"}:  # the shuffled pairs are others
        assert turned[name] == pytest.approx(scores[name])


def test_captions_given_twice_change_no_recall_of_images() -> None:
    images, captions = unit(4, 12), unit(5, 12)
    once = retrieval_scores(images, captions, torch.arange(12))
    twice = retrieval_scores(images, captions.repeat(2, 1), torch.arange(12).repeat(2))
    for k in (1, 5, 10):
        assert twice[f"text-to-image R@{k}"] == once[f"text-to-image R@{k}"]


def test_the_seed_draws_the_shuffled_pairs() -> None:
    images, captions, index = unit(1, 12), unit(2, 36), torch.arange(12).repeat(3)
    areas = [retrieval_scores(images, captions, index, seed=n)["AUC"] for n in (0, 0, 1, 2)]
    assert areas[0] == areas[1]
    assert len(set(areas)) > 1


def test_ranks_by_hand() -> None:
    images = torch.eye(3)
    captions = torch.tensor([[0.9, 0.1, 0.0], [0.8, 0.6, 0.0], [0.5, 0.6, 0.7]])
    scores = retrieval_scores(images, captions, torch.arange(3))
    # the second caption is nearer to the first image; the second image's best, of .6, is shared
    # with the third caption, which counts against it
    assert scores["text-to-image R@1"] == pytest.approx(2 / 3)
    assert scores["image-to-text R@1"] == pytest.approx(2 / 3)
    assert scores["text-to-image R@5"] == scores["image-to-text R@5"] == 1


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_embeddings_that_are_not_finite_are_named(wrong: float) -> None:
    images = torch.eye(3)
    images[1, 1] = wrong
    for pair in ((images, torch.eye(3)), (torch.eye(3), images)):
        with pytest.raises(ValueError, match="images and captions must be finite"):
            retrieval_scores(*pair, torch.arange(3))


def test_every_image_needs_a_caption() -> None:
    with pytest.raises(ValueError, match="got 3 images, 2 of them named"):
        retrieval_scores(torch.eye(3), torch.eye(3), torch.tensor([0, 1, 1]))
    with pytest.raises(ValueError, match="at least 2 images"):
        retrieval_scores(torch.eye(1), torch.eye(1), torch.tensor([0]))
