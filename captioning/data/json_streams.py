"""Read large JSON files item by item, without loading the whole file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from captioning.data.json_files import DECODER, Record, as_record, explained, shown
from captioning.data.line_files import read_text

_SPACE = re.compile(r"[ \t\n\r]*")


def stream_records(path: str | Path, key: str) -> Iterator[Record]:
    """Yield the objects of the list ``key`` of a JSON file's object, parsed one by one.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: not UTF-8, not strict JSON, not an object, or no list of objects under ``key``.
            Text after the list is read last.
    """
    where, keys = str(path), {}
    for position, value in enumerate(_values(read_text(path), key, where, keys)):
        yield as_record(value, f"{where}: {key}[{position}]")
    Record(keys, where).items(key)


def _values(text: str, key: str, where: str, keys: dict[str, Any]) -> Iterator[Any]:
    """Yield the list's values; ``keys`` receives the object's other keys."""
    reader = _Reader(text)
    with explained(where):
        for name in reader.names():
            if name in keys:
                raise ValueError(f"key {shown(name)} occurs twice in one object", "remove one")
            if name == key and reader.begins("["):
                keys[name] = []
                yield from reader.items()
            else:
                value = reader.value()
                keys[name] = value if name == key else True


class _Reader:
    """A moving position in the text of a JSON object."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self._skip()

    def begins(self, mark: str) -> bool:
        """Whether a mark is next."""
        return self.text.startswith(mark, self.at)

    def value(self) -> Any:
        """Return the next value."""
        value, self.at = DECODER.raw_decode(self.text, self.at)
        self._skip()
        return value

    def names(self) -> Iterator[str]:
        """Yield the object's keys; the caller must read each value."""
        if not self.begins("{"):
            value = DECODER.decode(self.text)
            raise ValueError(f"must be an object {{...}}: got {shown(value)}")
        for _ in self._between("{", "}"):
            if not self.begins('"'):
                raise self._error("Expecting property name enclosed in double quotes")
            key = self.value()
            self._take(":", "Expecting ':' delimiter")
            yield key
        if self.at < len(self.text):
            raise self._error("Extra data")

    def items(self) -> Iterator[Any]:
        """Yield the values of the next list."""
        for _ in self._between("[", "]"):
            yield self.value()

    def _between(self, opening: str, closing: str) -> Iterator[None]:
        """Yield once per item, which the caller must read."""
        self._take(opening, f"Expecting {opening!r}")
        if not self.begins(closing):
            yield
            while not self.begins(closing):
                self._take(",", "Expecting ',' delimiter")
                yield
        self._take(closing, f"Expecting {closing!r}")

    def _take(self, mark: str, message: str) -> None:
        if not self.begins(mark):
            raise self._error(message)
        self.at += 1
        self._skip()

    def _skip(self) -> None:
        match = _SPACE.match(self.text, self.at)
        self.at = self.at if match is None else match.end()

    def _error(self, message: str) -> json.JSONDecodeError:
        return json.JSONDecodeError(message, self.text, self.at)
