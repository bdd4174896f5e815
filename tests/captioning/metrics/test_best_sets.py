"""The most diverse captions of an image, against every set written out."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from captioning.metrics.best_sets import best_diversity, best_of


def plain(captions: list[str], k: int, n: int) -> float:
    """The best Div-n of all sets."""
    scores = []
    for subset in combinations(captions, k):
        lines = [caption.split() for caption in subset]
        grams = [gram for line in lines for gram in (line if n == 1 else pairwise(line))]
        scores.append(len(set(grams)) / sum(map(len, lines)))
    return max(scores)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_no_set_is_better(k: int) -> None:
    rng = np.random.default_rng(k)
    words = np.array(["a", "dog", "runs", "on", "the", "grass"])
    captions = [" ".join(rng.choice(words, size=rng.integers(2, 9))) for _ in range(8)]
    best = best_of([caption.split() for caption in captions], k)
    assert best["Div-1"] == pytest.approx(plain(captions, k, 1))
    assert best["Div-2"] == pytest.approx(plain(captions, k, 2))


def test_each_n_has_its_own_set_and_images_count_alike() -> None:
    captions = {
        "1": ["A dog runs.", "A dog runs.", "Two cats sleep here"],
        "2": ["red red", "red red", "", "red"],
    }
    result = best_diversity(captions, k=2)
    assert result.per_image["1"] == {"Div-1": 1.0, "Div-2": pytest.approx(5 / 7)}
    assert result.per_image["2"] == {"Div-1": 1.0, "Div-2": 0.5}  # "" and "red"; "" and "red red"
    assert result.corpus["Div-2"] == pytest.approx((5 / 7 + 0.5) / 2)
    assert (result.settings["best"], result.settings["num_captions"]) == (2, 7)


def test_captions_without_words_are_not_diverse() -> None:
    assert best_of([[], [], []], 2) == {"Div-1": 0.0, "Div-2": 0.0}


def test_too_few_and_too_many_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 5 captions"):
        best_diversity({"1": ["a"] * 4})
    with pytest.raises(ValueError, match="at least 5 captions"):
        best_diversity({})
    with pytest.raises(ValueError, match="the maximum is 20000"):
        best_diversity({"1": ["a"] * 30})
    with pytest.raises(TypeError):
        best_diversity({"1": "a dog"})


def test_as_many_sets_as_are_allowed_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captioning.metrics.best_sets.MAX_SETS", 10)
    assert best_diversity({"1": ["a"] * 5}, k=2).corpus["Div-1"] == 0.5
    with pytest.raises(ValueError, match="15 sets of 2, the maximum is 10"):
        best_diversity({"1": ["a"] * 6}, k=2)
