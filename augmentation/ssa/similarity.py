"""Similarity of two words, cached: the same few are compared in every photo."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from captioning.interfaces import AbstractWordVectors


class WordSimilarity:
    """Cosine of the vectors of two words or short terms; 1 for equal ones.

    Args:
        vectors: of words; a term has the sum of its words' vectors.
    """

    def __init__(self, vectors: AbstractWordVectors) -> None:
        self._vectors = vectors
        self._rows: dict[str, Tensor] = {}
        self._similarities: dict[tuple[str, str], float] = {}

    def read(self, terms: Iterable[str]) -> None:
        """Look up the words of many terms at once: a file of vectors is read once for all."""
        words = {word for term in terms for word in _words_of(term)}
        if words:
            self._vectors.vectors(sorted(words))

    def __call__(self, first: str, second: str) -> float:
        """In [-1, 1]; 0 where a word has no vector."""
        if first == second:
            return 1.0
        key = (first, second) if first < second else (second, first)
        if key not in self._similarities:
            self._similarities[key] = float(self._row(first) @ self._row(second))
        return self._similarities[key]

    def _row(self, term: str) -> Tensor:
        if term not in self._rows:
            total = self._vectors.vectors(_words_of(term)).sum(0)
            self._rows[term] = total / total.norm().clamp_min(1e-9)
        return self._rows[term]


def _words_of(term: str) -> list[str]:
    return term.replace("-", " ").split() or [term]
