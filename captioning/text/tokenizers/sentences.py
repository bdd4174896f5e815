"""Tokenizer of a causal language model: captions as sentences that end with a full stop."""

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
    """Subwords of a causal language model, with the full stop as end token.

    Such models have no other end token and no padding. The separator of training
    texts, which no caption holds, serves as begin token, padding and unknown word. A caption
    with an inner full stop is encoded completely, but decoding stops at the first full stop.

    Args:
        definition: content of a ``tokenizer.json``.
        size: vocabulary size V; may exceed the file's tokens if the model has spare ones.
        start_id: the token that separated the model's training texts.
        max_tokens: maximum tokens including begin and full stop; longer captions are cut.

    Raises:
        ValueError: an id outside [0, V), more tokens than V, or no token for the full stop.
    """

    kind = "sentences"

    def __init__(self, *, definition: str, size: int, start_id: int, max_tokens: int = 64) -> None:
        self._tokenizer = Tokenizer.from_str(definition)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        num_tokens = self._tokenizer.get_vocab_size()
        if num_tokens > size or not 0 <= start_id < size:
            raise ValueError(
                f"the tokenizer has {num_tokens} tokens and start token {start_id}, but the model "
                f"has {size} tokens; use the tokenizer that belongs to the model"
            )
        stop = self._ids(STOP)
        ends = [self._ids(f"{word}{STOP}")[-1:] for word in ("dog", "to run")]
        if ends != [stop, stop] or self._tokenizer.decode(stop).strip() != STOP:
            raise ValueError(
                "the tokenizer has no separate token for the full stop, which must end captions; "
                "use tokenizer=words, or another language model"
            )
        self.bos_id = self.pad_id = self.unk_id = start_id
        self.eos_id = stop[0]
        self._definition, self._size, self.max_tokens = definition, size, max_tokens

    @classmethod
    @loadable
    def of_causal(
        cls, captions: Iterable[str] = (), *, name: str, max_tokens: PositiveInt = 64
    ) -> SentenceTokenizer:
        """Build the tokenizer of a causal language model.

        Args:
            captions: unused; the vocabulary comes from the model.
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
        """Return begin token, the sentence's tokens and full stop; at most ``max_tokens``."""
        ids = self._ids(as_sentence(caption).removesuffix(STOP))
        return [self.bos_id, *ids[: self.max_tokens - 2], self.eos_id]

    def left_out(self, caption: str, ids: Sized) -> int:
        """Count the tokens of a caption beyond ``max_tokens``, including begin and full stop."""
        if len(ids) < self.max_tokens:
            return 0
        return len(self._ids(as_sentence(caption).removesuffix(STOP))) + 2 - self.max_tokens

    def token_spans(self, caption: str) -> list[Span]:
        """Return the spans of the subwords; the final full stop has an empty span."""
        text = as_sentence(caption).removesuffix(STOP)
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return [NOWHERE, *text_spans(offsets[: self.max_tokens - 2], text, caption), NOWHERE]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text up to and including the first full stop."""
        ids = list(ids)
        ids = ids[: ids.index(self.eos_id) + 1] if self.eos_id in ids else ids
        return self._tokenizer.decode([token for token in ids if token != self.bos_id]).strip()

    def spellings(self, text: str) -> list[list[int]]:
        """Return the ids of a text after a space, and capitalised at the start of a caption."""
        text = " ".join(text.split())
        if not text:
            return []
        spellings = [self._ids(f" {text}"), self._ids(f"{text[0].upper()}{text[1:]}")]
        return [ids for ids in spellings if ids and self.unk_id not in ids]

    @cached_property
    def _continuing(self) -> frozenset[int]:
        """Tokens without a leading space that begin with a letter or digit."""
        vocabulary = self._tokenizer.get_vocab()
        return frozenset(
            number
            for token, number in vocabulary.items()
            if not token.startswith(SPACES) and token[:1].isalnum()
        )

    def state(self) -> dict[str, Any]:
        """Return the tokenizer's definition and settings as plain values."""
        return {
            "definition": self._definition,
            "size": self._size,
            "start_id": self.bos_id,
            "max_tokens": self.max_tokens,
        }
