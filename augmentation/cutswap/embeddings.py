"""Embed object words with any of the framework's encoders, for CutSwap's clusters.

The thesis (Hahn, 2022, section 4.4.1) tries Word2vec, GloVe and CLIP's text side and takes CLIP's;
this framework adds the sentence encoder and the text side of the small joint space.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from captioning.interfaces import AbstractWordVectors, TextEmbedder

Embed = Callable[[Sequence[str]], Tensor]


@dataclass(frozen=True, kw_only=True)
class WordEmbeddings:
    """Words with unit-length vectors, so that distances rank pairs as cosines do.

    Attributes:
        words: W words that have a vector, in their order.
        vectors: ``(W, D) float32`` of unit length.
        missing: words without a vector.
    """

    words: tuple[str, ...]
    vectors: np.ndarray
    missing: tuple[str, ...] = ()


def by_texts(encoder: TextEmbedder) -> Embed:
    """Embed words with a sentence encoder, or with the text encoder of CLIP or the joint space."""
    return encoder.embed_texts


def by_word_vectors(vectors: AbstractWordVectors) -> Embed:
    """Embed words with word vectors; several words get the mean of the known vectors."""

    def embed(texts: Sequence[str]) -> Tensor:
        parts = [text.replace("-", " ").split() for text in texts]
        flat = vectors.vectors([word for words in parts for word in words])
        rows, start = flat.new_zeros(len(parts), flat.shape[1]), 0
        for row, words in enumerate(parts):
            # words without a vector are zeros, and the length is made 1 afterwards: a sum will do
            rows[row] = flat[start : start + len(words)].sum(0)
            start += len(words)
        return rows

    return embed


def embed_words(words: Sequence[str], embed: Embed) -> WordEmbeddings:
    """Embed words; words without a vector are listed in ``missing``.

    Args:
        words: distinct, such as `ObjectTable.names`.
        embed: function from `by_texts` or `by_word_vectors`.

    Raises:
        ValueError: ``words`` is empty, no word has a vector, or a vector is not finite.
    """
    if not words:
        raise ValueError("words must not be empty: no caption mentions a listed object")
    vectors = embed(list(words)).detach().float().cpu().numpy()
    if vectors.shape[:1] != (len(words),) or not np.isfinite(vectors).all():
        raise ValueError(
            f"vectors must be finite, with one vector for each word: got {vectors.shape} for "
            f"{len(words)} words; check the encoder's weights"
        )
    lengths = np.linalg.norm(vectors, axis=1)
    has_vector = lengths > 0
    if not has_vector.any():
        raise ValueError(f"none of the {len(words)} words has a vector; choose other embeddings")
    return WordEmbeddings(
        words=tuple(word for word, keep in zip(words, has_vector, strict=True) if keep),
        vectors=vectors[has_vector] / lengths[has_vector, None],
        missing=tuple(word for word, keep in zip(words, has_vector, strict=True) if not keep),
    )
