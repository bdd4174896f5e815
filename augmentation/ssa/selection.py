"""Which of a photo's new captions are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from augmentation.captions.new_captions import NewCaption
from augmentation.regions.proposal import draw_key
from captioning.data.steps.added_captions import focus
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Draws captions of small parts, of larger ones, and long ones.

    Attributes:
        max_small: captions of small parts a photo, drawn at random.
        small_coverage: a caption of lower coverage, in [0, 1], describes a small part of its photo.
        min_captions: captions of larger parts are added up to so many captions a photo.
        max_long: long captions a photo. Their lengths are drawn evenly from ``min_long_words`` to
            ``max_long_words``, and the nearest captions are taken.
        min_long_words, max_long_words: words of a long caption.
        seed: of the draws.
    """

    max_small: int
    small_coverage: float
    min_captions: int
    max_long: int
    min_long_words: int
    max_long_words: int
    seed: int

    def select(self, candidates: Sequence[NewCaption]) -> list[NewCaption]:
        """The captions that are kept, of one photo."""
        order = sorted(
            candidates,
            key=lambda new: draw_key(self.seed, "drawn", new.sample.image_id, new.text),
        )
        long = [
            caption
            for caption in order
            if self.max_long and _num_words(caption) >= self.min_long_words
        ]
        short = [caption for caption in order if caption not in long]
        small = [caption for caption in short if _coverage(caption) < self.small_coverage]
        large = [caption for caption in short if caption not in small]
        kept = small[: self.max_small]
        return [
            *kept,
            *large[: max(self.min_captions - len(kept), 0)],
            *self._select_long(long),
        ]

    def _select_long(self, candidates: Sequence[NewCaption]) -> list[NewCaption]:
        """The captions nearest to drawn lengths."""
        remaining = [
            caption for caption in candidates if _num_words(caption) <= self.max_long_words
        ]
        selected: list[NewCaption] = []
        for number in range(min(self.max_long, len(remaining))):
            key = draw_key(self.seed, "long", remaining[0].sample.image_id, str(number))
            num_words = self.min_long_words + int(key, 16) % (
                self.max_long_words - self.min_long_words + 1
            )
            selected.append(
                min(remaining, key=lambda caption: abs(_num_words(caption) - num_words))
            )
            remaining.remove(selected[-1])
        return selected


def _num_words(caption: NewCaption) -> int:
    return len(caption.text.split())


def _coverage(caption: NewCaption) -> float:
    return focus(replace(caption.sample, caption=caption.text, phrases=caption.phrases))
