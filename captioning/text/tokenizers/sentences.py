"""Captions as the sentences of a causal language model: a capital first, a full stop last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer

from captioning.config.loadable import loadable
from captioning.config.ranges import PositiveInt
from captioning.interfaces import AbstractTokenizer
from captioning.text.causal import load_causal_tokens
from captioning.text.entities import as_sentence
from captioning.text.tokenizers.token_spans import NOWHERE, Span, text_spans

STOP = "."
SPACES = ("Ġ", "▁")  # a space in vocabularies of byte pairs and of sentence pieces


class SentenceTokenizer(AbstractTokenizer):
    """Sub-words of a causal language model; the full stop is the end token.

    Such a model has no other token for the end of a caption, nor one for padding. The token between
    texts, which no caption holds, is the begin token, the padding and the unknown word. A caption
    with a full stop inside is encoded completely, but decoding ends at the first full stop.

    Args:
        definition: content of a ``tokenizer.json``.
        size: V; more than the file's tokens where a model keeps spare ones.
        start_id: the token between the texts that the model was trained on.
        max_tokens: captions are cut after so many tokens, begin and full stop counted.

    Raises:
        ValueError: an id outside [0, V), more tokens than V, or no token that is the full stop.
    """

    kind = "sentences"

    def __init__(self, *, definition: str, size: int, start_id: int, max_tokens: int = 64) -> None:
        self._tokenizer = Tokenizer.from_str(definition)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        num_tokens = self._tokenizer.get_vocab_size()
        if num_tokens > size or not 0 <= start_id < size:
            raise ValueError(
                f"the tokenizer has {num_tokens} tokens and begins texts with number {start_id}, "
                f"the model has {size}: they do not belong together"
            )
        stop = self._ids(STOP)
        ends = [self._ids(f"{word}{STOP}")[-1:] for word in ("dog", "to run")]
        if ends != [stop, stop] or self._tokenizer.decode(stop).strip() != STOP:
            raise ValueError(
                "the tokenizer has no token of its own for the full stop, with which captions "
                "end here; use tokenizer=words, or another language model"
            )
        self.bos_id = self.pad_id = self.unk_id = start_id
        self.eos_id = stop[0]
        self._definition, self._size, self.max_tokens = definition, size, max_tokens

    @classmethod
    @loadable
    def of_causal(
        cls, captions: Iterable[str] = (), *, name: str, max_tokens: PositiveInt = 64
    ) -> SentenceTokenizer:
        """The tokenizer of a causal language model.

        Args:
            captions: not used; the vocabulary is the model's.
            name: see `captioning.text.causal.load_causal`.
            max_tokens: see the class.
        """
        del captions
        tokens = load_causal_tokens(name)
        return cls(
            definition=tokens.definition,
            size=tokens.size,
            start_id=tokens.start_id,
            max_tokens=max_tokens,
        )

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def __len__(self) -> int:
        return self._size

    def encode(self, caption: str) -> list[int]:
        """Begin token, the sentence's tokens, full stop; at most ``max_tokens``."""
        ids = self._ids(as_sentence(caption).removesuffix(STOP))
        return [self.bos_id, *ids[: self.max_tokens - 2], self.eos_id]

    def left_out(self, caption: str, ids: Sized) -> int:
        """Tokens from the ``max_tokens``-th on, begin and full stop counted."""
        if len(ids) < self.max_tokens:
            return 0
        return len(self._ids(as_sentence(caption).removesuffix(STOP))) + 2 - self.max_tokens

    def token_spans(self, caption: str) -> list[Span]:
        """Spans of the sub-words; the full stop, which ends every caption, has none."""
        text = as_sentence(caption).removesuffix(STOP)
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return [NOWHERE, *text_spans(offsets[: self.max_tokens - 2], text, caption), NOWHERE]

    def decode(self, ids: Sequence[int]) -> str:
        """Text up to the first full stop, which it keeps."""
        ids = list(ids)
        ids = ids[: ids.index(self.eos_id) + 1] if self.eos_id in ids else ids
        return self._tokenizer.decode([token for token in ids if token != self.bos_id]).strip()

    def spellings(self, text: str) -> list[list[int]]:
        """After a space, and with a capital at the caption's beginning."""
        text = " ".join(text.split())
        if not text:
            return []
        spellings = [self._ids(f" {text}"), self._ids(f"{text[0].upper()}{text[1:]}")]
        return [ids for ids in spellings if ids and self.unk_id not in ids]

    @cached_property
    def _continuing(self) -> frozenset[int]:
        """Tokens without a space that begin with a letter or digit."""
        vocabulary = self._tokenizer.get_vocab()
        return frozenset(
            number
            for token, number in vocabulary.items()
            if not token.startswith(SPACES) and token[:1].isalnum()
        )

    def state(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "definition": self._definition,
            "size": self._size,
            "start_id": self.bos_id,
            "max_tokens": self.max_tokens,
        }
