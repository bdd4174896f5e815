"""Tables of rows: words that compete for one place in a caption, grouped by meaning."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

WORD = re.compile(r"[A-Za-z]+")
"""Regular expression of a word in a caption."""


@dataclass(frozen=True, kw_only=True)
class WordRow:
    """Words that compete for one place in a caption.

    Attributes:
        name: topic and number, such as ``"object3.1"``.
        topic: topic of the row, such as ``"object"``.
        meanings: synonyms grouped by meaning; the first word stands for the meaning.
    """

    name: str
    topic: str
    meanings: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWord:
    """A row word in a caption.

    Attributes:
        start: index of the word's first character.
        word: word as written.
        row: row number in the table.
        meaning: meaning number in the row.
    """

    start: int
    word: str
    row: int
    meaning: int


@dataclass(frozen=True, kw_only=True, eq=False)
class RowTable:
    """Rows with lookups from words to their rows and meanings.

    Attributes:
        rows: rows with at least two meanings; a word of several rows belongs to the first.
        same: for each row word, all words for the same thing, in every form.
        only_after: for a word, the words of which one must precede it; otherwise it is skipped.
    """

    rows: tuple[WordRow, ...]
    same: Mapping[str, frozenset[str]]
    only_after: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """Topics in the order of the rows."""
        return tuple(dict.fromkeys(row.topic for row in self.rows))

    @cached_property
    def content_hash(self) -> str:
        """Hash of the table's content."""
        rows = [[row.name, row.topic, row.meanings] for row in self.rows]
        groups = [
            {word: sorted(words) for word, words in kind.items()}
            for kind in (self.same, self.only_after)
        ]
        content = json.dumps([rows, *groups], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @cached_property
    def _places(self) -> Mapping[str, tuple[int, int]]:
        """Row and meaning of each word."""
        places: dict[str, tuple[int, int]] = {}
        for number, row in enumerate(self.rows):
            for meaning, words in enumerate(row.meanings):
                for word in words:
                    places.setdefault(word, (number, meaning))
        return places

    @cached_property
    def things(self) -> tuple[tuple[tuple[int, ...], ...], Mapping[str, int]]:
        """Numbers of the things that rows name, in any form: by row and meaning, and by word."""
        groups = {words: number for number, words in enumerate(dict.fromkeys(self.same.values()))}
        by_word = {word: groups[words] for word, words in self.same.items()}
        by_row = tuple(tuple(by_word[words[0]] for words in row.meanings) for row in self.rows)
        return by_row, by_word

    def words_of(self, caption: str) -> Iterator[RowWord]:
        """Yield the row words of a caption, in order."""
        before = ""
        for match in WORD.finditer(caption):
            word = match[0].lower()
            place = self._places.get(word)
            if place is not None and before in self.only_after.get(word, (before,)):
                row, meaning = place
                yield RowWord(start=match.start(), word=match[0], row=row, meaning=meaning)
            before = word


def joined(tables: Sequence[RowTable]) -> RowTable:
    """Concatenate tables; a word of several tables belongs to the first."""
    same: dict[str, frozenset[str]] = {}
    only_after: dict[str, frozenset[str]] = {}
    for table in tables:
        new = {word: words for word, words in table.same.items() if word not in same}
        only_after |= {w: words for w, words in table.only_after.items() if w in new}
        same |= new
    rows = tuple(row for table in tables for row in table.rows)
    return RowTable(rows=rows, same=same, only_after=only_after)


def table_of(texts: Mapping[str, str]) -> RowTable:
    """Parse tables given by topic, in the format of `captioning.text.word_rows`."""
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
