"""Word tokenizer whose vocabulary is counted on the training captions.

Captions are split as in nocaps-org/updown-baseline: lower case, NLTK's Treebank tokenizer,
punctuation dropped, rare words dropped, captions cut. In contrast, the unknown word is a separate
token, and padding, begin and end are three different tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Sized
from typing import Any

from captioning.config.loadable import loadable
from captioning.config.ranges import PositiveInt
from captioning.interfaces import AbstractTokenizer
from captioning.text.control_tokens import CONTROL_TOKENS
from captioning.text.spaceless import START, joined
from captioning.text.tokenizers.token_spans import NOWHERE, Span, word_spans
from captioning.text.tokenizers.treebank import SplitCaptions, split_words

SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")


class WordTokenizer(AbstractTokenizer):
    """Word tokenizer: words by frequency, then alphabet; ids 0-3 are pad, begin, end, unknown.

    Args:
        words: the vocabulary without special tokens, in id order.
        counts: how often each word or special token was the next token in the captions that
            the vocabulary was built on, or None.
        max_words: maximum words; longer captions are cut.
    """

    pad_id, bos_id, eos_id, unk_id = range(4)

    kind = "words"

    def __init__(
        self, *, words: Sequence[str], counts: Sequence[int] | None = None, max_words: int = 20
    ) -> None:
        if len(set(words)) != len(words):
            raise ValueError("words must be distinct; build them with WordTokenizer.build")
        self._words = (*SPECIAL, *words)
        if counts is not None and len(counts) != len(self._words):
            raise ValueError(
                f"counts must be one per word: got {len(counts)} of {len(self._words)}"
            )
        self.counts = None if counts is None else tuple(counts)
        self.max_words = max_words
        self._ids = {word: index for index, word in enumerate(self._words)}

    @property
    def words(self) -> tuple[str, ...]:
        """Special tokens, then the vocabulary."""
        return self._words

    @classmethod
    @loadable
    def build(
        cls,
        captions: Iterable[str] | SplitCaptions,
        *,
        min_count: PositiveInt = 5,
        max_words: PositiveInt = 20,
        extra_words: Sequence[str] | None = None,
        control: bool = False,
    ) -> WordTokenizer:
        """Build a vocabulary of words seen ``min_count`` times, plus ``extra_words``.

        Args:
            captions: training captions, as texts or as `SplitCaptions`.
            min_count: minimum number of occurrences.
            max_words: see the class.
            extra_words: words to add whatever their count.
            control: append `captioning.text.control_tokens` to the vocabulary.

        Raises:
            ValueError: no word is frequent enough.
        """
        if not isinstance(captions, SplitCaptions):
            captions = SplitCaptions(captions, max_words=max_words)
        counts = captions.counts
        frequent = {word for word, count in counts.items() if count >= min_count}
        vocabulary = (frequent | set(extra_words or ())) - set(SPECIAL)
        if not vocabulary:
            raise ValueError(
                f"no word occurs {min_count} times in the captions; lower tokenizer.min_count"
            )
        words = sorted(vocabulary, key=lambda word: (-counts[word], word))
        unknown = counts.total() - sum(counts[word] for word in words)
        words += CONTROL_TOKENS if control else ()
        word_counts = [0, 0, len(captions), unknown, *(counts[word] for word in words)]
        return cls(words=words, counts=word_counts, max_words=max_words)

    def with_words(self, captions: Iterable[str], *, min_count: int) -> WordTokenizer:
        """Return a vocabulary with further words appended; existing ids stay the same.

        Args:
            captions: texts in which the further words are counted.
            min_count: minimum number of occurrences of further words.
        """
        seen = SplitCaptions(captions, max_words=self.max_words).counts
        new = {w: n for w, n in seen.items() if n >= min_count and w not in self._ids}
        words = sorted(new, key=lambda word: (-new[word], word))
        counts = self.counts
        if counts is not None:
            # Scaled to the size of the text in which the existing words were counted.
            scale = sum(counts) / max(seen.total(), 1)
            counts = (*counts, *(max(round(scale * new[word]), 1) for word in words))
        return WordTokenizer(
            words=(*self.words[len(SPECIAL) :], *words), counts=counts, max_words=self.max_words
        )

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, caption: str) -> list[int]:
        """Return begin token, at most ``max_words`` words, and end token."""
        ids = [self._ids.get(word, self.unk_id) for word in split_words(caption)[: self.max_words]]
        return [self.bos_id, *ids, self.eos_id]

    def encode_batch(self, captions: Sequence[str]) -> list[list[int]]:
        """Encode many captions, see `encode`."""
        ids, unk_id, size = self._ids.get, self.unk_id, self.max_words
        return [
            [self.bos_id, *[ids(word, unk_id) for word in split_words(caption)[:size]], self.eos_id]
            for caption in captions
        ]

    def left_out(self, caption: str, ids: Sized) -> int:
        """Count the words of a caption beyond ``max_words``."""
        if len(ids) < self.max_words + 2:
            return 0
        return max(0, len(split_words(caption)) - self.max_words)

    def token_spans(self, caption: str) -> list[Span]:
        """Return the spans of the words in the caption as written."""
        words = [word.removeprefix(START) for word in split_words(caption)[: self.max_words]]
        return [NOWHERE, *word_spans(words, caption), NOWHERE]

    def decode(self, ids: Sequence[int]) -> str:
        """Join the words with spaces up to the first end token; for other scripts see `joined`."""
        words = []
        for index in ids:
            if index == self.eos_id:
                break
            if index not in (self.pad_id, self.bos_id):
                words.append(self.words[index])
        return joined(" ".join(words))

    def token_id(self, token: str) -> int | None:
        """Return the id of a word or special token."""
        return self._ids.get(token)

    def state(self) -> dict[str, Any]:
        """Return words and settings as plain values."""
        return {
            "words": list(self.words[len(SPECIAL) :]),
            "counts": None if self.counts is None else list(self.counts),
            "max_words": self.max_words,
        }

    def log_frequencies(self) -> list[float] | None:
        """Return the log of each word's relative frequency; a count of 0 is replaced by 0.1."""
        if self.counts is None:
            return None
        total = sum(self.counts)
        return [math.log(max(count, 0.1) / total) for count in self.counts]
