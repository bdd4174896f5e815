"""Pairs kept by similarity, and thresholds of any similarity."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from augmentation.regions.reranking import (
    CosineScorer,
    clip_threshold,
    mismatched_order,
    poor_share_threshold,
    rank,
    separating_threshold,
)


class Encoder:
    """Photos are their grey, texts their length, as angles."""

    space = "angles"

    def __init__(self) -> None:
        self.batch_sizes: list[int] = []

    def embed_photos(self, images):
        self.batch_sizes.append(len(images))
        return unit([image.getpixel((0, 0)) for image in images])

    def embed_texts(self, texts):
        self.batch_sizes.append(len(texts))
        return unit([len(text) for text in texts])


def unit(degrees):
    angles = torch.tensor(degrees, dtype=torch.float32).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def test_the_best_three_above_the_threshold_are_kept_best_first():
    scores = np.array([0.276, 0.312, 0.322, 0.335, 0.351])  # of Figure 3.10
    assert rank(scores, threshold=0.28) == (4, 3, 2)
    assert rank(scores, threshold=0.33) == (4, 3)
    assert rank(scores, threshold=0.4) == ()
    assert rank(scores, threshold=0.276, keep=9) == (4, 3, 2, 1, 0)


def test_equal_scores_keep_their_order_and_no_score_is_discarded():
    assert rank(np.array([0.3, np.nan, 0.3, np.inf]), threshold=0.1) == (0, 2)
    assert rank(np.array([]), threshold=0.1) == ()
    with pytest.raises(ValueError, match=r"scores must be \(P,\)"):
        rank(np.zeros((2, 2)), threshold=0)


def test_the_threshold_of_clip_is_for_clip_alone():
    assert clip_threshold("ViT-B-32/openai").value == 0.28
    with pytest.raises(ValueError, match="got joint-space; estimate a threshold"):
        clip_threshold("joint-space")


def test_every_tenth_augmented_pair_is_below():
    scores = np.linspace(0, 1, 101)
    threshold = poor_share_threshold(scores, space="joint-space")
    assert threshold.value == pytest.approx(0.1)
    with pytest.raises(ValueError, match="poor_share must be between 0 and 1"):
        poor_share_threshold(scores, space="", poor_share=1)


def test_the_threshold_that_tells_real_pairs_from_mismatched_ones():
    threshold = separating_threshold(
        np.array([0.5, 0.6, 0.7, 0.2]), np.array([0.1, 0.2, 0.3, 0.55]), space="joint-space"
    )
    assert threshold.value == 0.5
    assert (threshold.kept_matched, threshold.kept_mismatched) == (0.75, 0.25)
    with pytest.raises(ValueError, match="mismatched must be at least one finite score"):
        separating_threshold(np.ones(2), np.array([]), space="")


def test_pairs_are_scored_and_repeats_embedded_once():
    encoder = Encoder()
    images = [Image.new("L", (2, 2), grey) for grey in (0, 90)]
    scorer = CosineScorer(encoder=encoder)
    scores = scorer.scores([images[0], images[1], images[0]], ["", "x" * 90, "x" * 90])
    np.testing.assert_allclose(scores, [1, 1, 0], atol=1e-6)
    assert (encoder.batch_sizes, scorer.space) == ([2, 2], "angles")
    assert scorer.scores([], []).shape == (0,)
    with pytest.raises(ValueError, match="each image needs one caption: 1 captions for 2 images"):
        scorer.scores(images, ["a"])


def test_mismatched_pairs_are_of_other_photos():
    ids = ["a", "a", "b", "c", "c", "d"]
    order = mismatched_order(ids)
    assert sorted(order) == list(range(6))
    assert all(ids[i] != ids[j] for i, j in enumerate(order))
    assert order == mismatched_order(ids)
    assert any(mismatched_order(ids, seed=seed) != order for seed in range(1, 9))
    with pytest.raises(ValueError, match="at least two different photos"):
        mismatched_order(["a", "a"])
    with pytest.raises(ValueError, match="over half of the pairs"):
        mismatched_order(["a", "a", "a", "b"])
