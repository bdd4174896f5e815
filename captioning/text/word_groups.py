"""Captions of a photo as numbers of tokens, with the places of words that belong to a row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from captioning.text.word_rows import row_words, word_rows

PAD, UNKNOWN = 0, 1
_TOKEN = re.compile(r"[A-Za-z]+|[0-9]+|[^\sA-Za-z0-9]")
WINDOW = 4  # neighbours on each side of a word
_NUM_STOP_WORDS = 16  # the most frequent tokens of no row tell little: other words do not read them
_MAX_TOGETHER = 8  # captions of one photo that are read together; the cost grows with its square


@dataclass(frozen=True, kw_only=True)
class Group:
    """Captions of one photo, their tokens one after another.

    Attributes:
        photo: number of the photo.
        captions: numbers of the captions.
        tokens: ``(L,) int64``.
        owner: ``(L,) int64`` place in ``captions`` of each token's caption.
        keys: ``(K,) int64`` places of the tokens that tell something: all but stop words.
        neighbours: ``(K, 2 * WINDOW) int64`` tokens before and after each of these.
        places: ``(Q,) int64`` which of the keys are words of a row.
        rows, meanings: ``(Q,) int64`` of these words, see `captioning.text.word_rows`.
        starts: ``(Q,) int64`` index of each word's first character in its caption.
    """

    photo: int
    captions: tuple[int, ...]
    tokens: np.ndarray
    owner: np.ndarray
    keys: np.ndarray
    neighbours: np.ndarray
    places: np.ndarray
    rows: np.ndarray
    meanings: np.ndarray
    starts: np.ndarray


class Vocabulary:
    """Numbers of words; rare ones share a number."""

    def __init__(self, captions: Sequence[str], *, min_count: int = 2) -> None:
        counts = Counter(token for caption in captions for token in _tokens(caption))
        frequent = sorted(token for token, count in counts.items() if count >= min_count)
        words = [word for row in word_rows() for words in row.meanings for word in words]
        self.numbers = {
            token: number
            for number, token in enumerate(dict.fromkeys([*words, *frequent]), start=2)
        }
        free = sorted(counts.keys() - set(words), key=lambda token: (-counts[token], token))
        self._stop = frozenset(self.numbers.get(t, UNKNOWN) for t in free[:_NUM_STOP_WORDS])

    def __len__(self) -> int:
        """With padding and unknown."""
        return len(self.numbers) + 2

    def group(self, photo: int, captions: Sequence[tuple[int, str]]) -> Group:
        """Numbered captions of a photo as the network reads them."""
        tokens: list[int] = []
        owner: list[int] = []
        keys: list[int] = []
        neighbours: list[list[int]] = []
        words: list[tuple[int, int, int, int]] = []
        for place, (_, caption) in enumerate(captions):
            known = {word.start: word for word in row_words(caption)}
            matches = list(_TOKEN.finditer(caption))
            own = [self.numbers.get(match[0].lower(), UNKNOWN) for match in matches]
            around = [PAD] * WINDOW + own + [PAD] * WINDOW
            for number, (match, token) in enumerate(zip(matches, own, strict=True)):
                if token in self._stop:
                    continue
                word = known.get(match.start())
                if word is not None:
                    words.append((len(keys), word.row, word.meaning, word.start))
                keys.append(len(tokens) + number)
                end = number + 2 * WINDOW + 1
                neighbours.append(around[number : number + WINDOW] + around[end - WINDOW : end])
            tokens += own
            owner += [place] * len(own)
        columns = np.array(words, dtype=np.int64).reshape(-1, 4).T
        return Group(
            photo=photo,
            captions=tuple(number for number, _ in captions),
            tokens=np.array(tokens, dtype=np.int64),
            owner=np.array(owner, dtype=np.int64),
            keys=np.array(keys, dtype=np.int64),
            neighbours=np.array(neighbours, dtype=np.int64).reshape(-1, 2 * WINDOW),
            places=columns[0],
            rows=columns[1],
            meanings=columns[2],
            starts=columns[3],
        )

    def groups(self, captions: Sequence[str], photos: Sequence[int]) -> list[Group]:
        """All captions by photo, a few at a time."""
        by_photo: dict[int, list[tuple[int, str]]] = {}
        for number, (caption, photo) in enumerate(zip(captions, photos, strict=True)):
            by_photo.setdefault(photo, []).append((number, caption))
        return [
            self.group(photo, numbered[start : start + _MAX_TOGETHER])
            for photo, numbered in by_photo.items()
            for start in range(0, len(numbered), _MAX_TOGETHER)
        ]


def _tokens(caption: str) -> list[str]:
    return [token.lower() for token in _TOKEN.findall(caption)]
