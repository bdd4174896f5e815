"""Tables of rows: which words compete for a place, and which of them name the same thing."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

WORD = re.compile(r"[A-Za-z]+")
"""What counts as a word of a caption here."""


@dataclass(frozen=True, kw_only=True)
class WordRow:
    """Words that compete for a place.

    Attributes:
        name: topic and number, such as ``"object3.1"``.
        topic: their topic, such as ``"object"``.
        meanings: words of one meaning each; the first is written for it.
    """

    name: str
    topic: str
    meanings: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWord:
    """A word of a row in a caption.

    Attributes:
        start: index of its first character.
        word: word as written.
        row: number in the table.
        meaning: number in the row.
    """

    start: int
    word: str
    row: int
    meaning: int


@dataclass(frozen=True, kw_only=True, eq=False)
class RowTable:
    """Rows, and where words stand in them.

    Attributes:
        rows: rows of two meanings or more; a word of several rows belongs to the first.
        same: all words that name the same thing, in every form, by word of a row.
        only_after: by word, the words one of which must precede it; else it is skipped.
    """

    rows: tuple[WordRow, ...]
    same: Mapping[str, frozenset[str]]
    only_after: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """In the order of the rows."""
        return tuple(dict.fromkeys(row.topic for row in self.rows))

    @cached_property
    def content_hash(self) -> str:
        """Of all that it says."""
        rows = [[row.name, row.topic, row.meanings] for row in self.rows]
        groups = [
            {word: sorted(words) for word, words in kind.items()}
            for kind in (self.same, self.only_after)
        ]
        content = json.dumps([rows, *groups], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @cached_property
    def _places(self) -> Mapping[str, tuple[int, int]]:
        """Row and meaning by word."""
        places: dict[str, tuple[int, int]] = {}
        for number, row in enumerate(self.rows):
            for meaning, words in enumerate(row.meanings):
                for word in words:
                    places.setdefault(word, (number, meaning))
        return places

    @cached_property
    def things(self) -> tuple[tuple[tuple[int, ...], ...], Mapping[str, int]]:
        """A number for each thing that rows name, in whatever form: by row and meaning, by word."""
        groups = {words: number for number, words in enumerate(dict.fromkeys(self.same.values()))}
        by_word = {word: groups[words] for word, words in self.same.items()}
        by_row = tuple(tuple(by_word[words[0]] for words in row.meanings) for row in self.rows)
        return by_row, by_word

    def words_of(self, caption: str) -> Iterator[RowWord]:
        """The words of a caption that belong to a row, in order."""
        before = ""
        for match in WORD.finditer(caption):
            word = match[0].lower()
            place = self._places.get(word)
            if place is not None and before in self.only_after.get(word, (before,)):
                row, meaning = place
                yield RowWord(start=match.start(), word=match[0], row=row, meaning=meaning)
            before = word


def joined(tables: Sequence[RowTable]) -> RowTable:
    """All rows, one table after another; a word of several belongs to the first."""
    same: dict[str, frozenset[str]] = {}
    only_after: dict[str, frozenset[str]] = {}
    for table in tables:
        new = {word: words for word, words in table.same.items() if word not in same}
        only_after |= {w: words for w, words in table.only_after.items() if w in new}
        same |= new
    rows = tuple(row for table in tables for row in table.rows)
    return RowTable(rows=rows, same=same, only_after=only_after)


def table_of(texts: Mapping[str, str]) -> RowTable:
    """A table by topic, written as `captioning.text.word_rows` says."""
    rows, same = [], {}
    for topic, text in texts.items():
        for number, line in enumerate(text.strip().splitlines()):
            columns = [[m.split("/") for m in column.split("=")] for column in line.split()]
            for form in range(max(len(words) for column in columns for words in column)):
                meanings = [
                    tuple(words[form] for words in column if form < len(words))
                    for column in columns
                ]
                name = f"{topic}{number}.{form}"
                row = WordRow(name=name, topic=topic, meanings=tuple(filter(None, meanings)))
                rows.append(row)
    for column in " ".join(texts.values()).split():
        words = frozenset(re.split("[/=]", column))
        same |= {word: same.get(word, frozenset()) | words for word in words}
    return RowTable(rows=tuple(row for row in rows if len(row.meanings) > 1), same=same)
