"""Word n-gram language model, learned from captions in seconds, without pretrained weights."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from captioning.interfaces import AbstractLanguageModel

_WORD = re.compile(r"[a-z0-9]+(?:['-][a-z0-9]+)*|[.,!?;:]")
START, RARE = "<s>", "<rare>"


class NgramLanguageModel(AbstractLanguageModel):
    """Trigram language model with absolute discounting (Ney et al., 1994).

    ``p(w | h) = max(c(h w) − d, 0) / c(h) + d n(h) / c(h) · p(w | shorter h)``, n(h) the number of
    different words that follow h; without history, add-one frequencies. Letter case is
    ignored, and all rare words share one token.

    Args:
        texts: training texts.
        discount: d, in (0, 1).
        min_count: minimum occurrences of a word that is not rare.
        name: readable name.

    Raises:
        ValueError: no words, or a discount out of range.
    """

    def __init__(
        self,
        texts: Iterable[str],
        *,
        discount: float = 0.75,
        min_count: int = 3,
        name: str = "trigrams",
    ) -> None:
        if not 0 < discount < 1:
            raise ValueError(f"discount must be between 0 and 1: got {discount}")
        self.name, self._discount = name, discount
        lines = [words_and_marks(text) for text in texts]
        counts = Counter(word for line in lines for word in line)
        self._frequent = {word for word, count in counts.items() if count >= min_count}
        self._grams: Counter[tuple[str, ...]] = Counter()
        self._total: Counter[tuple[str, ...]] = Counter()
        for line in lines:
            for history, word in self._steps(line):
                for start in range(3):
                    self._grams[*history[start:], word] += 1
                    self._total[history[start:]] += 1
        if not self._grams:
            raise ValueError("the n-gram model needs training texts with words: got none")
        self._kinds = Counter(gram[:-1] for gram in self._grams)
        self._cache: dict[tuple[str, ...], float] = {}

    def log_probs(self, texts: Sequence[str]) -> list[Tensor]:
        """Return log-probabilities of words and punctuation marks; see `AbstractLanguageModel`."""
        return [
            torch.tensor([self._log_prob((*h, w)) for h, w in self._steps(words_and_marks(text))])
            for text in texts
        ]

    def log_prob_after(self, before: Sequence[str], words: Sequence[str]) -> float:
        """Return the log-probability of words after other words, or at the start of a text.

        Args:
            before: previous words of the text, in lower case; may be empty.
            words: the next words.
        """
        steps = self._steps([*before, *words])[len(before) :]
        return sum(self._log_prob((*history, word)) for history, word in steps)

    def _steps(self, words: Sequence[str]) -> list[tuple[tuple[str, str], str]]:
        line = [START, START, *(word if word in self._frequent else RARE for word in words)]
        return [((line[n], line[n + 1]), line[n + 2]) for n in range(len(words))]

    def _log_prob(self, gram: tuple[str, ...]) -> float:
        log_prob = self._cache.get(gram)
        if log_prob is None:
            log_prob = self._cache[gram] = math.log(self._prob(gram))
        return log_prob

    def _prob(self, gram: tuple[str, ...]) -> float:
        history = gram[:-1]
        total = self._total[history]
        if not history:
            return (self._grams[gram] + 1) / (total + len(self._frequent) + 2)
        backoff = self._prob(gram[1:])
        if not total:
            return backoff
        discounted = max(self._grams[gram] - self._discount, 0)
        return (discounted + self._discount * self._kinds[history] * backoff) / total


def words_and_marks(text: str) -> list[str]:
    """Split a text into words and punctuation marks, in lower case."""
    return _WORD.findall(text.lower())
