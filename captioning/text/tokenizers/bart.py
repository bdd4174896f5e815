"""BART's subword tokenizer, with the control tokens of CIC-BART."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from captioning.config.loadable import loadable
from captioning.config.ranges import PositiveInt
from captioning.interfaces import AbstractTokenizer
from captioning.runtime.model_folder import model_folder
from captioning.text.control_tokens import CONTROL_TOKENS
from captioning.text.tokenizers.token_spans import NOWHERE, Span, text_spans

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
SPACE = "Ġ"  # the space before a word in byte-level vocabularies


class BartTokenizer(AbstractTokenizer):
    """Byte-pair tokenizer of BART: captions unchanged, between ``</s> <s>`` and ``</s>``.

    BART's decoder starts with the end token ``</s>``, and the first token it generates is ``<s>``.

    Args:
        definition: content of a ``tokenizer.json`` that ends with the control tokens.
        max_tokens: maximum tokens, including the three special tokens; longer captions are cut.

    Raises:
        ValueError: the definition lacks tokens, or does not end with the control tokens.
    """

    kind = "bart"

    def __init__(self, *, definition: str, max_tokens: int = 200) -> None:
        self._tokenizer = Tokenizer.from_str(definition)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        ids = {token: self._tokenizer.token_to_id(token) for token in SPECIAL}
        special_ids = [number for number in ids.values() if number is not None]
        missing = [token for token, number in ids.items() if number is None]
        if missing:
            raise ValueError(
                f"the tokenizer lacks {', '.join(missing)}, so it is not a BART tokenizer"
            )
        self._begin_id, self.pad_id, self.eos_id, self.unk_id = special_ids
        self.bos_id = self.eos_id
        self._size = self._tokenizer.get_vocab_size()
        last_tokens = [self._tokenizer.id_to_token(n) for n in range(self._size - 200, self._size)]
        if tuple(last_tokens) != CONTROL_TOKENS:
            raise ValueError(
                "the tokenizer's last 200 tokens must be those of captioning.text.control_tokens; "
                "build it with BartTokenizer.of_bart"
            )
        self._definition, self.max_tokens = definition, max_tokens

    @classmethod
    @loadable
    def of_bart(
        cls, captions: Iterable[str] = (), *, name: str, max_tokens: PositiveInt = 200
    ) -> BartTokenizer:
        """Build the tokenizer of a BART model, with the control tokens after its own tokens.

        Args:
            captions: unused; the vocabulary comes from the model.
            name: hub name or folder, with ``tokenizer.json``, or ``vocab.json`` and ``merges.txt``.
            max_tokens: see the class; 200 in the authors' code.

        Raises:
            FileNotFoundError: the model has no tokenizer files.
            ValueError: the tokenizer is not BART's.
        """
        del captions
        folder = model_folder(name, instead="tokenizer=words_control")
        tokenizer = _read(folder)
        tokenizer.add_special_tokens([*SPECIAL, *CONTROL_TOKENS])
        return cls(definition=tokenizer.to_str(), max_tokens=max_tokens)

    @property
    def begin_id(self) -> int:
        """Id of the token ``<s>``."""
        return self._begin_id

    def __len__(self) -> int:
        return self._size

    def encode(self, caption: str) -> list[int]:
        """Return ``</s> <s>``, the caption's tokens and ``</s>``; at most ``max_tokens``."""
        ids = self._tokenizer.encode(caption, add_special_tokens=False).ids
        return [self.bos_id, self.begin_id, *ids[: self.max_tokens - 3], self.eos_id]

    def left_out(self, caption: str, ids: Sized) -> int:
        """Count the tokens of a caption beyond ``max_tokens``, including special tokens."""
        if len(ids) < self.max_tokens:
            return 0
        whole = self._tokenizer.encode(caption, add_special_tokens=False).ids
        return len(whole) + 3 - self.max_tokens

    def token_spans(self, caption: str) -> list[Span]:
        """Return the spans of the subwords in the caption."""
        offsets = self._tokenizer.encode(caption, add_special_tokens=False).offsets
        spans = text_spans(offsets[: self.max_tokens - 3], caption, caption)
        return [NOWHERE, NOWHERE, *spans, NOWHERE]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text up to the first end token after the start."""
        ids = list(ids)
        ids = ids[1:] if ids[:2] == [self.bos_id, self.begin_id] else ids
        ids = ids[: ids.index(self.eos_id)] if self.eos_id in ids else ids
        return self._tokenizer.decode(ids, skip_special_tokens=True).strip()

    def spellings(self, text: str) -> list[list[int]]:
        """Return the ids of a text at the start of a caption, and after a space."""
        encodings = self._tokenizer.encode_batch([text, f" {text}"], add_special_tokens=False)
        return [
            encoding.ids
            for encoding in encodings
            if encoding.ids and self.unk_id not in encoding.ids
        ]

    @cached_property
    def _continuing(self) -> frozenset[int]:
        """Tokens that begin with a letter or digit instead of a space."""
        vocabulary = self._tokenizer.get_vocab()
        return frozenset(
            number
            for token, number in vocabulary.items()
            if token[0] != SPACE and token[0].isalnum()
        )

    def token_id(self, token: str) -> int | None:
        """Return the id of a subword in the vocabulary's spelling."""
        return self._tokenizer.token_to_id(token)

    def state(self) -> dict[str, Any]:
        """Return the tokenizer's definition and settings as plain values."""
        return {"definition": self._definition, "max_tokens": self.max_tokens, "kind": self.kind}


def _read(folder: Path) -> Tokenizer:
    tokenizer_file = folder / "tokenizer.json"
    parts = [folder / "vocab.json", folder / "merges.txt"]
    if tokenizer_file.is_file():
        return Tokenizer.from_file(str(tokenizer_file))
    if not all(part.is_file() for part in parts):
        raise FileNotFoundError(
            f"{folder}: no tokenizer.json, nor vocab.json with merges.txt; save the model with its "
            "tokenizer"
        )
    tokenizer = Tokenizer(BPE.from_file(*map(str, parts)))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    return tokenizer
