"""Large JSON files read item by item, so that the whole tree never stands in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from captioning.data.json_files import DECODER, Record, as_record, explained, unique_keys
from captioning.data.line_files import read_text

_SPACE = re.compile(r"[ \t\n\r]*")


def stream_records(path: str | Path, key: str) -> Iterator[Record]:
    """The objects of the list ``key`` of a JSON file's object, each made when it is asked for.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: not UTF-8, not strict JSON, not an object, or no list of objects under ``key``.
            What follows the list is looked at last.
    """
    reader, position = _Reader(read_text(path)), 0
    where = str(path)
    with explained(where):
        keys = reader.keys()
        name = next(keys, None)
    while name is not None:
        if name == key and reader.begins("["):
            items = reader.items()
            while True:
                with explained(where):
                    item = next(items, reader)
                if item is reader:
                    break
                yield as_record(item, f"{where}: {key}[{position}]")
                position += 1
        else:
            with explained(where):
                value = reader.value()
            if name == key:
                Record({key: value}, where).items(key)
        with explained(where):
            name = next(keys, None)
    Record(reader.known_keys, where).get(key)


class _Reader:
    """A place in the text of a JSON object, which moves on."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.known_keys: dict[str, Any] = {}
        self._skip()

    def begins(self, mark: str) -> bool:
        """Whether a mark is next."""
        return self.text.startswith(mark, self.at)

    def value(self) -> Any:
        """The next value."""
        try:
            value, self.at = DECODER.scan_once(self.text, self.at)
        except StopIteration as error:
            raise json.JSONDecodeError("Expecting value", self.text, error.value) from None
        self._skip()
        return value

    def keys(self) -> Iterator[str]:
        """Keys of the object that is the text; the caller reads each one's value."""
        if not self.begins("{"):
            as_record(DECODER.decode(self.text), "the file")
        for _ in self._between("{", "}"):
            if not self.begins('"'):
                raise self._error("Expecting property name enclosed in double quotes")
            key = self.value()
            self._take(":", "Expecting ':' delimiter")
            if key in self.known_keys:
                unique_keys([(key, None), (key, None)])
            self.known_keys[key] = True
            yield key
        if self.at < len(self.text):
            raise self._error("Extra data")

    def items(self) -> Iterator[Any]:
        """Values of the list that is next."""
        for _ in self._between("[", "]"):
            yield self.value()

    def _between(self, opening: str, closing: str) -> Iterator[None]:
        """Once for each item, which the caller reads."""
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
