"""Wrapper of a published model's subword tokenizer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Sized
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer

from captioning.config.loadable import loadable
from captioning.config.ranges import PositiveInt
from captioning.interfaces import AbstractTokenizer
from captioning.runtime.files import read_json
from captioning.runtime.model_folder import model_folder
from captioning.text.tokenizers.token_spans import NOWHERE, Span, text_spans

FILE_NAME = "tokenizer.json"
_MARKS = re.compile(r"[.!\"()*#:;~]")


def cleaned(caption: str, max_words: int | None) -> str:
    """Clean a caption as BLIP does: lower case, some marks as spaces, ``max_words`` words."""
    return " ".join(_MARKS.sub(" ", caption.lower()).split()[:max_words])


class SubwordTokenizer(AbstractTokenizer):
    """Subwords of a fast tokenizer (``tokenizers`` library) between a begin and an end token.

    Args:
        definition: content of a ``tokenizer.json``.
        size: vocabulary size V; may exceed the file's tokens if the model has spare ones.
        bos_id, eos_id, pad_id, unk_id: ids in [0, V).
        max_words: maximum words; longer captions are cut.
        max_tokens: maximum tokens including begin and end; longer captions are cut.

    Raises:
        ValueError: an id outside [0, V), or more tokens than V.
    """

    kind = "subwords"

    def __init__(
        self,
        *,
        definition: str,
        size: int,
        bos_id: int,
        eos_id: int,
        pad_id: int,
        unk_id: int,
        max_words: int = 30,
        max_tokens: int = 40,
    ) -> None:
        self._tokenizer = Tokenizer.from_str(definition)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        num_tokens = self._tokenizer.get_vocab_size()
        if num_tokens > size:
            raise ValueError(
                f"the tokenizer has {num_tokens} tokens, but the model has {size}; use the "
                "tokenizer that belongs to the model"
            )
        self.bos_id, self.eos_id, self.pad_id, self.unk_id = bos_id, eos_id, pad_id, unk_id
        for name, value in self._ids().items():
            if not 0 <= value < size:
                raise ValueError(f"{name} must be in [0, {size}): got {value}")
        self._definition, self._size = definition, size
        self.max_words, self.max_tokens = max_words, max_tokens

    @classmethod
    @loadable
    def of_blip(
        cls,
        captions: Iterable[str] = (),
        *,
        name: str,
        max_words: PositiveInt = 30,
        max_tokens: PositiveInt = 40,
    ) -> SubwordTokenizer:
        """Build the tokenizer of a BLIP captioner.

        Args:
            captions: unused; the vocabulary comes from the model.
            name: hub name or folder.
            max_words: see the class; 30 in the authors' code.
            max_tokens: see the class; the authors' 40 count the prompt, too.

        Raises:
            FileNotFoundError: the model has no ``tokenizer.json``.
            ValueError: not BLIP's tokenizer, or required tokens are missing.
        """
        del captions
        folder = model_folder(name, instead="tokenizer=words")
        path = folder / FILE_NAME
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist; save the model with its tokenizer")
        definition = path.read_text(encoding="utf-8")
        vocabulary = Tokenizer.from_str(definition).get_vocab()
        missing = [token for token in ("[SEP]", "[PAD]", "[UNK]") if token not in vocabulary]
        if missing:
            raise ValueError(f"{path} lacks {', '.join(missing)}, so it is not BLIP's tokenizer")
        config = read_json(folder / "config.json")["text_config"]
        size = config.get("vocab_size", 30524)
        return cls(
            definition=definition,
            size=size,
            bos_id=config.get("bos_token_id", 30522),
            eos_id=vocabulary["[SEP]"],
            pad_id=vocabulary["[PAD]"],
            unk_id=vocabulary["[UNK]"],
            max_words=max_words,
            max_tokens=max_tokens,
        )

    def _ids(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("bos_id", "eos_id", "pad_id", "unk_id")}

    def __len__(self) -> int:
        return self._size

    def encode(self, caption: str) -> list[int]:
        """Return begin token, the caption's tokens and end token; at most ``max_tokens``."""
        text = cleaned(caption, self.max_words)
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [self.bos_id, *ids[: self.max_tokens - 2], self.eos_id]

    def left_out(self, caption: str, ids: Sized) -> int:
        """Count the words beyond ``max_words``, or else the tokens beyond ``max_tokens``."""
        words = max(0, len(cleaned(caption, None).split()) - self.max_words)
        if words or len(ids) < self.max_tokens:
            return words
        text = cleaned(caption, self.max_words)
        whole = self._tokenizer.encode(text, add_special_tokens=False).ids
        return len(whole) + 2 - self.max_tokens

    def token_spans(self, caption: str) -> list[Span]:
        """Return the spans of the subwords in the caption as written."""
        text = cleaned(caption, self.max_words)
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return [NOWHERE, *text_spans(offsets[: self.max_tokens - 2], text, caption), NOWHERE]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text up to the first end token."""
        ids = list(ids)
        ids = ids[: ids.index(self.eos_id)] if self.eos_id in ids else ids
        special = {self.bos_id, self.pad_id}
        return self._tokenizer.decode([token for token in ids if token not in special])

    @cached_property
    def _continuing(self) -> frozenset[int]:
        """Tokens written with ``##``, which continue a word."""
        vocabulary = self._tokenizer.get_vocab()
        return frozenset(number for token, number in vocabulary.items() if token.startswith("##"))

    def token_id(self, token: str) -> int | None:
        """Return the id of a subword in the vocabulary's spelling."""
        return self._tokenizer.token_to_id(token)

    def state(self) -> dict[str, Any]:
        """Return the tokenizer's definition and settings as plain values."""
        return {
            "definition": self._definition,
            "size": self._size,
            **self._ids(),
            "max_words": self.max_words,
            "max_tokens": self.max_tokens,
        }
