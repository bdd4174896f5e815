"""Tokenizer of an image-to-text model of transformers, for captions after its prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer

from captioning.config.loadable import loadable
from captioning.config.ranges import PositiveInt
from captioning.interfaces import AbstractTokenizer
from captioning.runtime.files import read_json
from captioning.runtime.processors import image_text_folder, load_processor
from captioning.text.prompts import prompt_format
from captioning.text.tokenizers.token_spans import NOWHERE, Span, text_spans

SPACES = ("Ġ", "▁")  # a space in vocabularies of byte pairs and of sentence pieces


class ImageTextTokenizer(AbstractTokenizer):
    """Tokenize captions with the model's own subwords after its prompt, with its end token.

    The begin token represents the prompt, which is not part of a caption.

    Args:
        definition: content of a ``tokenizer.json``.
        size: size V of the model's output.
        before: text between prompt and caption.
        bos_id, eos_id, pad_id, unk_id: ids in [0, V).
        further_ends: further ids that end a caption in a search.
        max_tokens: maximum tokens including begin and end; longer captions are cut.

    Raises:
        ValueError: an id outside [0, V).
    """

    kind = "image_text"
    of_processor = True

    def __init__(
        self,
        *,
        definition: str,
        size: int,
        before: str,
        bos_id: int,
        eos_id: int,
        pad_id: int,
        unk_id: int,
        further_ends: Sequence[int] = (),
        max_tokens: int = 64,
    ) -> None:
        self._tokenizer = Tokenizer.from_str(definition)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.bos_id, self.eos_id, self.pad_id, self.unk_id = bos_id, eos_id, pad_id, unk_id
        for name, value in self._ids().items():
            if not 0 <= value < size:
                raise ValueError(
                    f"{name} must be in [0, {size}): got {value}; use the tokenizer that belongs "
                    "to the model"
                )
        # Reset padding and truncation, which earlier calls of the processor may have set.
        self._definition = self._tokenizer.to_str()
        self._size, self._before = size, before
        self.max_tokens, self._further_ends = max_tokens, tuple(further_ends)

    @classmethod
    @loadable
    def of_model(
        cls,
        captions: Iterable[str] = (),
        *,
        name: str,
        prompt: str = "",
        template: Mapping[str, Any] | None = None,
        max_tokens: PositiveInt = 64,
    ) -> ImageTextTokenizer:
        """Build the tokenizer of an image-to-text model.

        Args:
            captions: unused; the vocabulary comes from the model.
            name: hub name or folder.
            prompt, template: see `captioning.text.prompts.prompt_format`.
            max_tokens: see the class.

        Raises:
            FileNotFoundError, ConnectionError: see `image_text_folder`.
            ValueError: the processor does not match the model.
        """
        del captions
        folder = image_text_folder(name)
        processor = load_processor(folder)
        form = prompt_format(processor, folder, prompt, template)
        tokenizer = processor.tokenizer
        size = _vocabulary_size(read_json(folder / "config.json"), len(tokenizer))
        if len(tokenizer) > size and not _are_marks(tokenizer, size):
            raise ValueError(
                f"{name}: the tokenizer has {len(tokenizer)} tokens, but the model has {size}; use "
                "the tokenizer that belongs to the model"
            )
        pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else form.end_id
        unk_id = tokenizer.unk_token_id if tokenizer.unk_token_id is not None else pad_id
        return cls(
            definition=tokenizer.backend_tokenizer.to_str(),
            size=size,
            before=form.before,
            bos_id=_start_id(processor, form.end_ids, size),
            eos_id=form.end_id,
            pad_id=pad_id,
            unk_id=unk_id,
            further_ends=form.end_ids[1:],
            max_tokens=max_tokens,
        )

    @property
    def further_ends(self) -> tuple[int, ...]:
        """Further tokens that end a caption in a search."""
        return self._further_ends

    def _ids(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("bos_id", "eos_id", "pad_id", "unk_id")}

    def _encoded(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def __len__(self) -> int:
        return self._size

    def encode(self, caption: str) -> list[int]:
        """Return begin token, the caption's tokens and end token; at most ``max_tokens``."""
        ids = self._encoded(self._before + " ".join(caption.split()))
        return [self.bos_id, *ids[: self.max_tokens - 2], self.eos_id]

    def left_out(self, caption: str, ids: Sized) -> int:
        """Count the tokens of a caption beyond ``max_tokens``, including begin and end."""
        if len(ids) < self.max_tokens:
            return 0
        return len(self._encoded(self._before + " ".join(caption.split()))) + 2 - self.max_tokens

    def token_spans(self, caption: str) -> list[Span]:
        """Return the spans of the subwords, without the text before the caption."""
        text, head = " ".join(caption.split()), len(self._before)
        offsets = self._tokenizer.encode(self._before + text, add_special_tokens=False).offsets
        inside = [(max(0, a - head), max(0, b - head)) for a, b in offsets[: self.max_tokens - 2]]
        return [NOWHERE, *text_spans(inside, text, caption), NOWHERE]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text up to the first end token, without special tokens."""
        ids = list(ids)
        ids = ids[1:] if ids[:1] == [self.bos_id] else ids  # it may be the end token, too
        ends = {self.eos_id, *self._further_ends}
        ids = ids[: next((place for place, token in enumerate(ids) if token in ends), len(ids))]
        return self._tokenizer.decode([token for token in ids if token != self.bos_id]).strip()

    def spellings(self, text: str) -> list[list[int]]:
        """Return the ids of a text after a space and at the start, with small or capital letter."""
        text = " ".join(text.split())
        if not text:
            return []
        forms = dict.fromkeys((text, f"{text[0].upper()}{text[1:]}"))
        texts = [f" {text}", *(f"{self._before}{form}" for form in forms)]
        spellings = list(dict.fromkeys(tuple(self._encoded(form)) for form in texts))
        return [list(ids) for ids in spellings if ids and self.unk_id not in ids]

    @cached_property
    def _continuing(self) -> frozenset[int]:
        """Tokens within a word: with ``##``, or else without the vocabulary's space mark."""
        vocabulary = self._tokenizer.get_vocab()
        if any(token.startswith("##") for token in vocabulary):
            return frozenset(n for token, n in vocabulary.items() if token.startswith("##"))
        return frozenset(
            number
            for token, number in vocabulary.items()
            if not token.startswith(SPACES) and token[:1].isalnum()
        )

    def token_id(self, token: str) -> int | None:
        """Return the id of a subword in the vocabulary's spelling."""
        return self._tokenizer.token_to_id(token)

    def state(self) -> dict[str, Any]:
        """Return the tokenizer's definition and settings as plain values."""
        return {
            "kind": self.kind,
            "definition": self._definition,
            "size": self._size,
            "before": self._before,
            **self._ids(),
            # for older checkpoints without this key
            **({"further_ends": list(self._further_ends)} if self._further_ends else {}),
            "max_tokens": self.max_tokens,
        }


def _vocabulary_size(config: dict[str, Any], default: int) -> int:
    """Return the size of the model's output; some outputs may be unused."""
    text = config.get("text_config") or config.get("decoder") or {}
    size = text.get("vocab_size") or config.get("vocab_size")
    return int(size) if size else default


def _are_marks(tokenizer: Any, size: int) -> bool:
    """Whether the tokens from ``size`` on, which the model cannot produce, are special tokens."""
    marks = tokenizer.added_tokens_decoder
    return all(number in marks for number in range(size, len(tokenizer)))


def _start_id(processor: Any, end_ids: Sequence[int], size: int) -> int:
    """Choose a token that no caption holds to represent the prompt, if possible no end token."""
    tokenizer = processor.tokenizer
    names = ("bos_token_id", "cls_token_id", "image_token_id", "pad_token_id", "unk_token_id")
    named = [getattr(tokenizer, name, None) for name in names]
    # Some tokenizers do not list their special tokens.
    others = [number for number, token in tokenizer.added_tokens_decoder.items() if token.special]
    known = [value for value in (*named, *tokenizer.all_special_ids, *others) if value is not None]
    free = [value for value in known if value < size and value not in end_ids]
    return free[0] if free else end_ids[0]
