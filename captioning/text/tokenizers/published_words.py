"""Word tokenizer with the ids of published UpDown checkpoints, where tokens have several roles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Sized
from typing import Any, Literal

from captioning.config.loadable import loadable
from captioning.config.ranges import PositiveInt
from captioning.interfaces import AbstractTokenizer
from captioning.text.tokenizers.token_spans import NOWHERE, Span, word_spans
from captioning.text.tokenizers.treebank import split_words

Layout = Literal["updown_baseline", "ruotianluo"]
UNKNOWN, BOUNDARY = "@@UNKNOWN@@", "@@BOUNDARY@@"


class PublishedWords(AbstractTokenizer):
    """Word vocabulary in the authors' order, with their special tokens.

    ``"updown_baseline"`` (nocaps-org/updown-baseline): 0 is padding and unknown word, so
    unknown words carry no loss; 1 is begin and end. The end token is written after as many tokens
    as there are known words: each unknown word costs a caption its last word, as in that code.

    ``"ruotianluo"`` (ruotianluo/ImageCaptioning.pytorch): 0 is padding, begin and end; the last
    token is the unknown word, if there is one.

    Args:
        words: word of each id, in order.
        layout: ``"updown_baseline"`` or ``"ruotianluo"``.
        max_words: maximum words; longer captions are cut.

    Raises:
        ValueError: repeated words, or special tokens in the wrong positions.
    """

    kind = "published_words"

    def __init__(self, *, words: Sequence[str], layout: Layout, max_words: int = 20) -> None:
        if len(set(words)) != len(words):
            raise ValueError("words must be distinct")
        self._words, self.layout, self.max_words = tuple(words), layout, max_words
        self._ids = {word: index for index, word in enumerate(words)}
        self.pad_id = 0
        if layout == "updown_baseline":
            if self._words[:2] != (UNKNOWN, BOUNDARY):
                raise ValueError(f"words must begin with {UNKNOWN} and {BOUNDARY}: got {words[:2]}")
            self.bos_id = self.eos_id = 1
            self.unk_id = 0
        else:
            self.bos_id = self.eos_id = 0
            self.unk_id = self._ids.get("UNK", 0)

    @property
    def words(self) -> tuple[str, ...]:
        """Special tokens and words, in id order."""
        return self._words

    @classmethod
    @loadable
    def build(
        cls,
        captions: Iterable[str],
        *,
        layout: Layout,
        min_count: PositiveInt = 5,
        max_words: PositiveInt = 20,
        extra_words: Sequence[str] | None = None,
    ) -> PublishedWords:
        """Build a vocabulary of words seen ``min_count`` times, followed by ``extra_words``.

        Raises:
            ValueError: no word is frequent enough.
        """
        counts = Counter(word for caption in captions for word in split_words(caption))
        frequent = sorted(word for word, count in counts.items() if count >= min_count)
        if not frequent:
            raise ValueError(
                f"no word occurs {min_count} times in the captions; lower tokenizer.min_count"
            )
        kept = [*frequent, *sorted(set(extra_words or ()) - set(frequent))]
        marked = (
            [UNKNOWN, BOUNDARY, *kept] if layout == "updown_baseline" else ["<end>", *kept, "UNK"]
        )
        return cls(words=marked, layout=layout, max_words=max_words)

    def __len__(self) -> int:
        return len(self._words)

    def encode(self, caption: str) -> list[int]:
        """Return begin token, at most ``max_words`` words, and end token."""
        ids = [self._ids.get(word, self.unk_id) for word in split_words(caption)[: self.max_words]]
        tokens = [self.bos_id, *ids, self.pad_id]
        if self.unk_id != self.pad_id:
            tokens[-1] = self.eos_id
            return tokens
        tokens[1 + sum(token != self.pad_id for token in ids)] = self.eos_id
        while tokens[-1] == self.pad_id != self.eos_id:
            tokens.pop()
        return tokens

    def left_out(self, caption: str, ids: Sized) -> int:
        """Count the words of a caption beyond ``max_words``."""
        del ids  # unknown words at the end are no tokens
        return max(0, len(split_words(caption)) - self.max_words)

    def token_spans(self, caption: str) -> list[Span]:
        """Return the spans of the words; end tokens have empty spans, even in place of a word."""
        words = split_words(caption)[: self.max_words]
        tokens, spans = self.encode(caption), [NOWHERE, *word_spans(words, caption), NOWHERE]
        end = tokens.index(self.eos_id, 1)
        return [NOWHERE if place == end else spans[place] for place in range(len(tokens))]

    def decode(self, ids: Sequence[int]) -> str:
        """Join the words with spaces, up to the first end token."""
        ids = list(ids)
        ids = ids[: ids.index(self.eos_id)] if self.eos_id in ids else ids
        return " ".join(self._words[index] for index in ids)

    def spellings(self, text: str) -> list[list[int]]:
        """Return the words' ids; empty if a word is unknown."""
        ids = [self._ids.get(word, self.unk_id) for word in split_words(text)]
        return [ids] if ids and self.unk_id not in ids else []

    def token_id(self, token: str) -> int | None:
        """Return the id of a word or special token."""
        return self._ids.get(token)

    def state(self) -> dict[str, Any]:
        """Return words and settings as plain values."""
        return {
            "kind": self.kind,
            "words": list(self._words),
            "layout": self.layout,
            "max_words": self.max_words,
        }
