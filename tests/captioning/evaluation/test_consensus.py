"""Consensus re-ranking against a search and a mean without any shortcut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captioning.evaluation import rerank
from captioning.evaluation.rerank import (
    TrainingImages,
    consensus_scores,
    nearest_images,
    unit_length,
)
from captioning.metrics.cider import CiderReferences, CiderStatistics
from captioning.metrics.diversity import select_best

CAPTIONS = [
    ["a man rides a horse", "a man on a brown horse", "the man on the horse"],
    ["a dog runs on the grass"],
    ["a brown dog runs", "the dog plays on grass"],
    ["two women sit at a table", "women eat food"],
    ["a brown horse stands on the grass", "a horse"],
]
FEATURES = np.array([[1, 0, 0], [0, 1, 0], [0, 2, 0.2], [0, 0, 3], [1, 0.5, 0]], dtype=np.float32)
QUERIES = np.array([[2, 0.1, 0], [0, 1, 0.01]], dtype=np.float32)
CANDIDATES = {
    "horse": ["a dog runs", "a man on a horse", "", "a brown horse"],
    "dog": ["two women", "a dog runs on the grass", "the brown dog"],
}


def training(**options: object) -> TrainingImages:
    return TrainingImages.prepare(CAPTIONS, FEATURES, **options)


def plain_nearest(queries: np.ndarray, keys: np.ndarray, k: int) -> list[list[int]]:
    """Sort all training images by rounded cosine, then by their number."""
    nearest = []
    for query in queries.astype(np.float64):
        cosines = [
            round(float(query @ key) / (np.linalg.norm(query) * np.linalg.norm(key) or 1), 6)
            for key in keys.astype(np.float64)
        ]
        nearest.append(sorted(range(len(keys)), key=lambda row, c=cosines: (-c[row], row))[:k])
    return nearest


# small whole numbers: many equal cosines, and no two that differ by less than the rounding
rows = st.lists(st.tuples(*[st.integers(-2, 2)] * 2), min_size=1, max_size=9)


@settings(max_examples=60)
@given(rows, rows, st.integers(1, 9), st.integers(1, 4))
def test_nearest_are_those_of_a_full_sort(queries: list, keys: list, k: int, block: int) -> None:
    k = min(k, len(keys))
    nearest = nearest_images(
        np.array(queries, dtype=np.float32), unit_length(np.array(keys)), k=k, block=block
    )
    assert nearest.tolist() == plain_nearest(np.array(queries), np.array(keys), k)


def test_photos_kept_twice_stay_in_order() -> None:
    generator = np.random.default_rng(0)
    keys = np.tile(generator.standard_normal((30, 64)), (3, 1))
    nearest = nearest_images(keys[:30], unit_length(keys), k=3)
    assert nearest.tolist() == [[row, row + 30, row + 60] for row in range(30)]


def test_scores_are_means_of_cider_to_the_neighbours_captions() -> None:
    images = training()
    scores = consensus_scores(CANDIDATES, QUERIES, images, num_neighbours=2)
    neighbours = plain_nearest(QUERIES, FEATURES, 2)
    assert neighbours == [[0, 4], [1, 2]]
    for (image_id, samples), near in zip(CANDIDATES.items(), neighbours, strict=True):
        references = [text for row in near for text in CAPTIONS[row]]
        alone = CiderReferences.prepare([references], images.statistics)
        expected = alone.score(samples, [0] * len(samples))
        assert scores[image_id] == pytest.approx(expected)
    assert select_best(CANDIDATES, scores, k=1) == {
        "horse": ["a man on a horse"],
        "dog": ["a dog runs on the grass"],
    }


@pytest.mark.parametrize("num_closest", [1, 2, 4, 50])
def test_mean_over_the_closest_captions(num_closest: int) -> None:
    images = training()
    options = {"num_neighbours": 3, "num_closest": num_closest}
    scores = consensus_scores(CANDIDATES, QUERIES, images, **options)
    for (image_id, samples), near in zip(
        CANDIDATES.items(), plain_nearest(QUERIES, FEATURES, 3), strict=True
    ):
        references = [text for row in near for text in CAPTIONS[row]]
        for sample, score in zip(samples, scores[image_id], strict=True):
            single = [
                CiderReferences.prepare([[reference]], images.statistics).score([sample])[0]
                for reference in references
            ]
            assert score == pytest.approx(np.mean(sorted(single)[::-1][:num_closest]))


def test_blocks_and_order_of_images_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    in_one_block = consensus_scores(CANDIDATES, QUERIES, training(), num_neighbours=2)
    turned = dict(reversed(CANDIDATES.items()))
    monkeypatch.setattr(rerank, "_MAX_CELLS", 1)
    parts = consensus_scores(turned, QUERIES[::-1], training(), num_neighbours=2)
    assert list(parts) == list(turned)
    for image_id, scores in in_one_block.items():
        assert parts[image_id] == pytest.approx(scores)


def test_a_neighbours_caption_is_the_best_and_an_empty_one_scores_nothing() -> None:
    samples = {"1": ["", "a dog runs on the grass", "a dog on grass"]}
    scores = consensus_scores(samples, FEATURES[1:2], training(), num_neighbours=1)
    assert scores["1"][:2] == pytest.approx([0, 10])
    assert 0 < scores["1"][2] < 10


def test_what_is_given_twice_changes_nothing() -> None:
    once = consensus_scores(CANDIDATES, QUERIES, training(), num_neighbours=2)
    samples = {image_id: group * 2 for image_id, group in CANDIDATES.items()}
    twice = consensus_scores(samples, QUERIES, training(), num_neighbours=2)
    assert twice == {image_id: pytest.approx(scores * 2) for image_id, scores in once.items()}
    double = TrainingImages.prepare([group * 2 for group in CAPTIONS], FEATURES)
    doubled = consensus_scores(CANDIDATES, QUERIES, double, num_neighbours=2)
    assert doubled == {image_id: pytest.approx(scores) for image_id, scores in once.items()}


def test_order_of_training_images_changes_nothing() -> None:
    turned = TrainingImages.prepare(CAPTIONS[::-1], FEATURES[::-1])
    turned_scores = consensus_scores(CANDIDATES, QUERIES, turned, num_neighbours=2)
    expected = consensus_scores(CANDIDATES, QUERIES, training(), num_neighbours=2)
    assert turned_scores == {
        image_id: pytest.approx(scores) for image_id, scores in expected.items()
    }


def test_samples_that_are_no_list_are_named() -> None:
    with pytest.raises(TypeError, match="candidates of image 'horse' must be a list of texts"):
        consensus_scores({"horse": "a horse"}, QUERIES[:1], training(), num_neighbours=2)


def test_frequencies_may_come_from_elsewhere() -> None:
    other = CiderStatistics.count([["a horse"], ["a horse"], ["a dog"]], source="other")
    own_scores = consensus_scores(CANDIDATES, QUERIES, training(), num_neighbours=2)
    other_scores = consensus_scores(
        CANDIDATES, QUERIES, training(statistics=other), num_neighbours=2
    )
    assert own_scores != other_scores
    assert training().statistics.source == "the training captions"


def test_features_of_length_0_are_near_to_none() -> None:
    assert unit_length(np.zeros((1, 2))).tolist() == [[0, 0]]
    nearest = nearest_images(np.array([[1.0, 0]]), unit_length(np.array([[0.0, 0], [1, 0]])), k=2)
    assert nearest.tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("features", "options", "message"),
    [
        (QUERIES[:1], {}, "every image must have a feature"),
        (QUERIES, {"num_closest": 0}, "num_closest must be at least 1"),
        (QUERIES, {"num_neighbours": 6}, r"k in \[1, 5\]"),
        (QUERIES, {"num_neighbours": 0}, r"k in \[1, 5\]"),
        (QUERIES[:, :2], {}, "as wide as"),
        (QUERIES * np.nan, {}, "finite"),
    ],
)
def test_bad_queries_are_named(features: np.ndarray, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        consensus_scores(CANDIDATES, features, training(), **({"num_neighbours": 2} | options))


def test_bad_training_images_are_named() -> None:
    with pytest.raises(ValueError, match="got 5 images with captions and 4 features"):
        TrainingImages.prepare(CAPTIONS, FEATURES[:4])
    with pytest.raises(ValueError, match="image 1 has none"):
        TrainingImages.prepare([["a"], []], FEATURES[:2])
