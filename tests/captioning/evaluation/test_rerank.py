"""Re-ranking by consensus: the photos that are alike decide, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from captioning.data.roster import Roster, build_roster
from captioning.evaluation.rerank import mean_features, rerank_by_consensus
from captioning.types import Prediction, Sample

# Photos are alike where their features point the same way: dogs to the right, boats up.
FEATURES = {"dog1": (1, 0), "dog2": (3, 0.1), "boat1": (0, 1), "boat2": (0.1, 2), "new": (2, 0)}
TRAIN = {
    "dog1": ["a dog runs on the grass", "a brown dog"],
    "dog2": ["a dog runs after a ball"],
    "boat1": ["a boat on the water"],
    "boat2": ["a white boat at sea"],
}


class Store:
    """Features by photo, half of them masked."""

    kind = "regions"

    def __init__(self) -> None:
        self.names = list(FEATURES)

    def positions(self, paths: list[Path]) -> np.ndarray:
        return np.array([self.names.index(path.stem) for path in paths])

    def read(self, positions: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.tensor([FEATURES[self.names[p]] for p in positions])
        regions = torch.stack([rows * 0.5, rows * 1.5, torch.zeros_like(rows)], dim=1).half()
        return regions, torch.tensor([[True, True, False]] * len(rows))


def roster(name: str, captions: dict[str, list[str]]) -> Roster:
    samples = [
        Sample(row=0, sample_id=f"{i}#{k}", image_id=i, image_path=Path(f"{i}.jpg"), caption=text)
        for i, texts in captions.items()
        for k, text in enumerate(texts)
    ]
    return build_roster(name, samples)


def predictions(*captions: str) -> list[list[Prediction]]:
    return [[Prediction(image_id="new", caption=caption, score=0.5) for caption in captions]]


def rerank(*captions: str, **options: Any) -> list[list[Prediction]]:
    parts = {"photos": roster("new", {"new": ["unknown"]}), "train": roster("train", TRAIN)}
    settings = {"num_neighbours": 2} | options
    return rerank_by_consensus(predictions(*captions), store=Store(), **parts, **settings)


def test_means_leave_masked_regions_out() -> None:
    means = mean_features(Store(), roster("train", TRAIN), ["boat2", "dog2"])
    assert means == pytest.approx(np.array([[0.1, 2], [3, 0.1]]), rel=1e-3)


def test_the_caption_that_similar_photos_share_comes_first() -> None:
    (group,) = rerank("a boat on the water", "a dog runs", "nothing of all that")
    assert [p.caption for p in group] == [
        "a dog runs",
        "a boat on the water",
        "nothing of all that",
    ]
    assert group[0].score > group[1].score >= group[2].score == 0
    (turned,) = rerank("nothing of all that", "a dog runs", "a boat on the water")
    assert turned[0] == group[0]


def test_equal_captions_keep_their_order() -> None:
    (group,) = rerank("zebra", "yak", "xylophone")
    assert [p.caption for p in group] == ["zebra", "yak", "xylophone"]


def test_more_neighbours_than_photos_are_refused() -> None:
    with pytest.raises(ValueError, match=r"rerank.num_neighbours=5: .* only 4 photos"):
        rerank("a dog", num_neighbours=5)
