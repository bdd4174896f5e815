"""Table 7's measures on counts that can be worked out by hand, and the figure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from augmentation.toca.corpus_similarity import (
    compare_corpora,
    compare_counts,
    draw_neighbourhoods,
)
from augmentation.toca.corpus_statistics import count_corpus
from augmentation.toca.templates import Deconstructed, deconstruct


def test_measures_by_hand() -> None:
    similarity = compare_counts({"a": 3, "b": 1}, {"a": 2, "c": 2, "d": 4})
    assert similarity.precision == 1 / 2
    assert similarity.recall == 1 / 3
    assert similarity.weighted_precision == 3 / 4
    assert similarity.weighted_recall == 2 / 8
    assert similarity.cosine == pytest.approx(6 / (10**0.5 * 24**0.5))


def test_a_corpus_is_like_itself_and_words_count_whatever_their_slot(gold) -> None:
    statistics = count_corpus(deconstruct(tags) for _, tags in gold)
    for similarity in compare_corpora(statistics, statistics).values():
        assert (similarity.precision, similarity.weighted_recall) == (1.0, 1.0)
        assert similarity.cosine == pytest.approx(1)
    noun = count_corpus([Deconstructed(structure="[N] .", words=(("park", "N"),))])
    verb = count_corpus([Deconstructed(structure="[VB] .", words=(("park", "VB"),))])
    similarities = compare_corpora(noun, verb)
    assert similarities["token"].precision == 1.0
    assert similarities["structure"].precision == 0.0


def test_slots_are_structures_without_function_words() -> None:
    on, under = (
        count_corpus([Deconstructed(structure=f"[N] [VBG] {word} [N] .", words=(("park", "N"),))])
        for word in ("on", "under")
    )
    similarities = compare_corpora(on, under)
    assert similarities["structure"].precision == 0.0
    assert similarities["slots"].precision == 1.0
    other = count_corpus([Deconstructed(structure="[N] [VBG] on .", words=(("park", "N"),))])
    assert compare_corpora(on, other)["slots"].precision == 0.0


def test_the_figure_shows_as_many_as_there_are(tmp_path: Path) -> None:
    sizes: list[int] = []

    def project(vectors) -> np.ndarray:
        sizes.append(len(vectors))
        return vectors

    counts = draw_neighbourhoods(
        tmp_path / "tsne.png",
        synthetic=[f"made {n}" for n in range(50)],
        target=[f"target {n}" for n in range(30)],
        embed=lambda texts: torch.rand(len(texts), 2),
        ratios=[0.1, 1, 10],
        num_target=20,
        project=project,
        generator=np.random.default_rng(0),
    )
    assert counts == {"0.1x": 2, "1x": 20, "10x": 50, "target": 20}
    assert sizes == [22, 40, 70]
    with Image.open(tmp_path / "tsne.png") as picture:
        assert picture.width > picture.height
