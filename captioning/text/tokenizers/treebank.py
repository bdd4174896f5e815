"""Split captions into words by NLTK's Treebank rules, with a cache of frequent pieces."""

from __future__ import annotations

import functools
import re
from array import array
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np

from captioning.interfaces import AbstractTokenizer
from captioning.text.spaceless import say_characters, spaced, with_starts

PUNCTUATION = frozenset(
    ["''", "'", "``", "`", '"', ".", "?", "!", ",", ":", ";", "-", "--", "...", "&", "/", *"(){}[]"]
)

MAX_PIECES = 2**18  # that are kept
NOT_SINGLE = -1

CONTRACTED = frozenset(["cannot", "gimme", "gonna", "gotta", "lemme", "wanna"])  # two words each
# Pieces between spaces whose words do not depend on the text around them: NLTK's wider rules
# concern quotation marks, brackets and an apostrophe at the end of a word.
_ALONE = re.compile(r"(?:[a-z0-9.,:;?!&$%/-]|(?<=[a-z0-9])'(?=[a-z0-9]))+")


@functools.cache
def _treebank() -> Any:
    # NLTK imports scikit-learn and pandas if installed: one second, for rules that few texts
    # need.
    from nltk.tokenize import NLTKWordTokenizer

    return NLTKWordTokenizer()


def split_words(caption: str) -> tuple[str, ...]:
    """Split a caption into lower-case words without punctuation; for other scripts see `spaced`."""
    text = spaced(with_starts(caption.lower()))
    words = [_pieces[piece] for piece in text.split(" ")]
    return _treebank_words(text) if None in words else tuple(chain.from_iterable(words))


def _treebank_words(text: str) -> tuple[str, ...]:
    words = []
    for token in _treebank().tokenize(text):
        # The tokenizer separates only the text's last full stop from its word.
        word = token.rstrip(".") if len(token) > 1 else token
        if word and word not in PUNCTUATION:
            words.append(word)
    return tuple(words)


def _words_of_piece(piece: str) -> tuple[str, ...] | None:
    """Return the words of a text between two spaces, or None if they depend on the context."""
    plain = piece[:-1] if piece.endswith((".", ",")) else piece
    parts = plain.split("-")
    if plain.isascii() and all(map(str.isalnum, parts)) and CONTRACTED.isdisjoint(parts):
        return (plain,)
    owner = plain.removesuffix("'s")
    if piece.endswith("'s") and owner.isascii() and owner.isalnum() and owner not in CONTRACTED:
        return (owner, "'s")
    if not _ALONE.fullmatch(piece):
        return None
    inside = _treebank_words(f"x {piece} x")[1:-1]
    return inside if inside == _treebank_words(f"x {piece}")[1:] else None


class _Pieces(dict[str, Any]):
    """Cache of the words of pieces, some 20 times as fast as NLTK."""

    def __missing__(self, piece: str) -> tuple[str, ...] | None:
        if len(self) >= MAX_PIECES:
            self.clear()
        words = self[piece] = _words_of_piece(piece)
        return words


_pieces = _Pieces()


class SplitCaptions:
    """Captions split once, for counting the vocabulary and for encoding.

    Args:
        captions: N captions.
        max_words: maximum words; longer captions are cut.

    Attributes:
        words: distinct words; may include a few words that were cut off.
        numbers: ``uint32`` positions in ``words``, caption after caption.
        lengths: ``(N,) int64`` number of words of each caption.
    """

    def __init__(self, captions: Iterable[str], *, max_words: int) -> None:
        known = _Numbers()
        single = _SingleWords(known).__getitem__
        numbers, lengths = array("I"), array("q")
        others = []
        for caption in captions:
            found = list(map(single, caption.lower().split(" ")))
            if len(found) > max_words or NOT_SINGLE in found:
                words = split_words(caption)
                found = [known[word] for word in words[:max_words]]
                others += [caption] if len(words) > max_words and not caption.isascii() else []
            numbers.extend(found)
            lengths.append(len(found))
        say_characters(others, f"each character is a word, cut after {max_words} (max_words)")
        self.words = tuple(known)
        self.numbers = np.array(numbers, dtype=np.uint32)
        self.lengths = np.array(lengths, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def counts(self) -> Counter[str]:
        """Count the occurrences of each word."""
        counts = np.bincount(self.numbers, minlength=len(self.words))
        return Counter(dict(zip(self.words, counts.tolist(), strict=True)))

    def encode(self, tokenizer: AbstractTokenizer, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Encode the first captions with a word tokenizer; return ids and each caption's end index.

        Args:
            tokenizer: tokenizer with the same ``max_words``.
            number: number of captions to encode, at most N.

        Returns:
            ids as from `WordTokenizer.encode`, caption after caption, and ends ``(number,) int64``.
        """
        lengths = self.lengths[:number]
        found = map(tokenizer.token_id, self.words)
        of_word = np.array([tokenizer.unk_id if i is None else i for i in found], dtype=np.int64)
        ends = np.cumsum(lengths + 2)
        ids = np.empty(int(lengths.sum()) + 2 * number, dtype=np.uint32)
        is_word = np.ones(len(ids), dtype=bool)
        for places, token in ((ends - lengths - 2, tokenizer.bos_id), (ends - 1, tokenizer.eos_id)):
            ids[places], is_word[places] = token, False
        ids[is_word] = of_word[self.numbers[: int(lengths.sum())]]
        return ids, ends


class _Numbers(dict[str, int]):
    """Numbers of words in order of first appearance, from 0."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class _SingleWords(dict[str, int]):
    """Numbers of pieces that are one word (nearly all pieces); `NOT_SINGLE` for other pieces."""

    def __init__(self, known: _Numbers) -> None:
        super().__init__()
        self.known = known

    def __missing__(self, piece: str) -> int:
        if len(self) >= MAX_PIECES:
            self.clear()
        words = _pieces[piece]
        number = NOT_SINGLE if words is None or len(words) != 1 else self.known[words[0]]
        self[piece] = number
        return number
