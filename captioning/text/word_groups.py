"""Convert the captions of a photo to token ids, with the positions of row words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from captioning.text.row_tables import RowTable, RowWord
from captioning.text.word_rows import closed_rows

PAD, UNKNOWN = 0, 1
_TOKEN = re.compile(r"[A-Za-z]+|[0-9]+|[^\sA-Za-z0-9]")
WINDOW = 4  # neighbours on each side of a word
_BESIDE = 2  # so near are words that go together
_NUM_STOP_WORDS = 16  # the most frequent tokens of no row tell little: other words do not read them
_MAX_TOGETHER = 8  # captions of one photo that are read together; the cost grows with its square


@dataclass(frozen=True, kw_only=True)
class Group:
    """Captions of one photo, with their tokens concatenated.

    Attributes:
        photo: number of the photo.
        captions: numbers of the captions.
        tokens: ``(L,) int64`` token ids.
        owner: ``(L,) int64`` index in ``captions`` of each token's caption.
        keys: ``(K,) int64`` positions of content tokens, that is, without stop words.
        neighbours: ``(K, 2 * WINDOW) int64`` tokens before and after each key.
        places: ``(Q,) int64`` which keys are row words.
        rows, meanings: ``(Q,) int64`` row and meaning in a `captioning.text.row_tables.RowTable`.
        starts: ``(Q,) int64`` index of each word's first character in its caption.
        named: ``(Q, K, 2) int64`` how many other captions name each meaning of the word's
            row, in any form, K the size of the largest row; and how often they do so beside a
            word that also occurs beside this word, as in "red shirt" and "blue shirt".
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
    named: np.ndarray


class Vocabulary:
    """Vocabulary of caption words; rare words share one id.

    Args:
        captions: captions whose words get ids.
        table: rows of the judged words; None: the closed rows.
        min_count: minimum occurrences of words outside rows; rarer words share one id.

    Attributes:
        things: ``(W, K) int64`` thing named by each meaning of each row, 0 beyond a row.
        thing_of: thing that each word names.
    """

    def __init__(
        self, captions: Sequence[str], *, table: RowTable | None = None, min_count: int = 2
    ) -> None:
        self.table = closed_rows() if table is None else table
        by_row, self.thing_of = self.table.things
        width = max(map(len, by_row))
        self.things = np.array([[*row, *[0] * (width - len(row))] for row in by_row])
        self._num_things = max(self.thing_of.values()) + 1
        counts = Counter(token for caption in captions for token in _tokens(caption))
        frequent = sorted(token for token, count in counts.items() if count >= min_count)
        words = [word for row in self.table.rows for words in row.meanings for word in words]
        self.numbers = {
            token: number
            for number, token in enumerate(dict.fromkeys([*words, *frequent]), start=2)
        }
        free = sorted(
            counts.keys() - (set(words) - self.table.only_after.keys()),
            key=lambda token: (-counts[token], token),
        )
        self._stop = {UNKNOWN} | {
            self.numbers[t] for t in free[:_NUM_STOP_WORDS] if t in self.numbers
        }
        self._is_stop = np.isin(np.arange(len(self)), list(self._stop))
        self._last: tuple[object, list[Group]] = (None, [])

    def __len__(self) -> int:
        """Return the number of ids, including padding and unknown."""
        return len(self.numbers) + 2

    def group(self, photo: int, captions: Sequence[tuple[int, str]]) -> Group:
        """Convert the numbered captions of a photo to a `Group`."""
        tokens: list[int] = []
        owner: list[int] = []
        keys: list[int] = []
        neighbours: list[list[int]] = []
        words: list[tuple[int, int, int, int, int]] = []
        for place, (_, caption) in enumerate(captions):
            own, read = self._read(caption)
            for number, around, word in read:
                if word is not None:
                    words.append((len(keys), word.row, word.meaning, word.start, place))
                keys.append(len(tokens) + number)
                neighbours.append(around)
            tokens += own
            owner += [place] * len(own)
        columns = np.array(words, dtype=np.int64).reshape(-1, 5).T
        around_keys = np.array(neighbours, dtype=np.int64).reshape(-1, 2 * WINDOW)
        texts = [caption for _, caption in captions]
        return Group(
            photo=photo,
            captions=tuple(number for number, _ in captions),
            tokens=np.array(tokens, dtype=np.int64),
            owner=np.array(owner, dtype=np.int64),
            keys=np.array(keys, dtype=np.int64),
            neighbours=around_keys,
            places=columns[0],
            rows=columns[1],
            meanings=columns[2],
            starts=columns[3],
            named=np.stack(
                [
                    self._named(texts, columns[1], columns[4]),
                    self._named_beside(around_keys[columns[0]], *columns[[1, 2, 4]]),
                ],
                axis=-1,
            ),
        )

    def _read(self, caption: str) -> tuple[list[int], list[tuple[int, list[int], RowWord | None]]]:
        """Return tokens, and position, neighbours and row word of each content token."""
        known = {word.start: word for word in self.table.words_of(caption)}
        matches = list(_TOKEN.finditer(caption))
        tokens = [self.numbers.get(match[0].lower(), UNKNOWN) for match in matches]
        padded = [PAD] * WINDOW + tokens + [PAD] * WINDOW
        read = []
        for number, (match, token) in enumerate(zip(matches, tokens, strict=True)):
            word = known.get(match.start())
            if word is not None or token not in self._stop:
                around = padded[number : number + WINDOW]
                around += padded[number + WINDOW + 1 : number + 2 * WINDOW + 1]
                read.append((number, around, word))
        return tokens, read

    def _named(self, captions: Sequence[str], rows: np.ndarray, owner: np.ndarray) -> np.ndarray:
        """Count the other captions that name each meaning: first half of ``Group.named``."""
        number_of = self.thing_of
        names = np.zeros((len(captions), self._num_things), dtype=np.int64)
        for place, caption in enumerate(captions):
            names[place, [number_of[t] for t in _tokens(caption) if t in number_of]] = 1
        others = names.sum(0) - names[owner]
        return np.take_along_axis(others, self.things[rows], axis=1)

    def _named_beside(
        self, neighbours: np.ndarray, rows: np.ndarray, meanings: np.ndarray, owner: np.ndarray
    ) -> np.ndarray:
        """Count such mentions beside equal neighbours: second half of ``Group.named``."""
        things = self.things
        near = neighbours[:, WINDOW - _BESIDE : WINDOW + _BESIDE]
        near = np.where(self._is_stop[near], PAD, near)
        share = (near[:, None, :, None] == near[None, :, None, :]) & (near[:, None, :, None] != PAD)
        beside = share.any((2, 3)) & (owner[:, None] != owner[None, :])
        names = np.zeros((len(rows), self._num_things), dtype=np.int64)
        names[np.arange(len(rows)), things[rows, meanings]] = 1
        return np.take_along_axis(beside @ names, things[rows], axis=1)

    def groups(self, captions: Sequence[str], photos: Sequence[int]) -> list[Group]:
        """Group all captions by photo, in parts; the last call's groups are cached."""
        key = (tuple(captions), tuple(photos))
        if self._last[0] != key:
            self._last = (key, self._groups(captions, photos))
        return self._last[1]

    def _groups(self, captions: Sequence[str], photos: Sequence[int]) -> list[Group]:
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
