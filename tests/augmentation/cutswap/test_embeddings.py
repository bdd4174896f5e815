"""Vectors of object words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_set import Letters

from augmentation.cutswap.embeddings import by_texts, by_word_vectors, embed_words
from captioning.text.word_tables import GloveVectors


def test_vectors_have_unit_length():
    embeddings = embed_words(("dog", "fire hydrant"), by_texts(Letters()))
    assert embeddings.vectors.shape == (2, 26)
    np.testing.assert_allclose(np.linalg.norm(embeddings.vectors, axis=1), 1, atol=1e-6)


def test_word_vectors_of_several_words_are_averaged_and_missing_words_named(tmp_path):
    (tmp_path / "glove.txt").write_text("fire 3 0\nhydrant 0 2\ndog 0 1\n")
    embed = by_word_vectors(GloveVectors(path=tmp_path / "glove.txt"))
    embeddings = embed_words(("dog", "fire hydrant", "fire-dog", "zebra"), embed)
    assert (embeddings.words, embeddings.missing) == (
        ("dog", "fire hydrant", "fire-dog"),
        ("zebra",),
    )
    half = 0.5**0.5
    np.testing.assert_allclose(embeddings.vectors, [[0, 1], [half, half], [half, half]], atol=1e-6)


def test_nothing_to_embed_is_refused():
    with pytest.raises(ValueError, match="no caption mentions a listed object"):
        embed_words((), by_texts(Letters()))
    with pytest.raises(ValueError, match="none of the 1 words has a vector"):
        embed_words(("dog",), lambda words: torch.zeros(1, 3))
    with pytest.raises(ValueError, match="must be finite, with one vector for each word"):
        embed_words(("dog",), lambda words: torch.full((1, 3), torch.nan))
