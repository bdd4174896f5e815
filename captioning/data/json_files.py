"""Read JSON strictly: each error names the file and the key."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioning.config.setting_error import SettingError
from captioning.data.line_files import read_lines, read_text


@dataclass(slots=True)  # frozen, one would take twice the time, and there is one for each sentence
class Record:
    """A JSON object and its place in a file; every getter checks type and value.

    Attributes:
        value: the object.
        where: file and place, such as ``captions.json: annotations[7]``, for error messages.
    """

    value: dict[str, Any]
    where: str

    def __contains__(self, key: str) -> bool:
        return self.value.get(key) is not None

    def get(self, key: str) -> Any:
        """Return the value of a required key.

        Raises:
            ValueError: no such key, or null.
        """
        value = self.value.get(key)
        if value is None and key in self.value:
            raise SettingError(
                self.where, f"{key!r} is null", "give it a value, or remove the entry"
            )
        if value is None:
            keys = ", ".join(map(repr, list(self.value)[:8])) or "no key"
            raise SettingError(self.where, f"key {key!r} is missing (it has {keys})", "add it")
        return value

    def invalid(self, key: str, expected: str) -> SettingError:
        """Return an error that states the expected and the actual value of ``key``."""
        return SettingError(
            self.where, f"{key!r} must be {expected}: got {shown(self.value[key])}", "correct it"
        )

    def text(self, key: str) -> str:
        """Return a text, possibly blank, that UTF-8 can encode."""
        value = self.get(key)
        if type(value) is str and value.isascii() and "\0" not in value:
            return value  # before a place is written down, which takes longer
        if not isinstance(value, str):
            raise self.invalid(key, "a text")
        return checked_text(value, f"{self.where}: {key!r}")

    def text_or_odd(self, key: str) -> Any:
        """Return the text under a key, or another value such as null or a number.

        Raises:
            ValueError: no such key, or a text that `text` refuses.
        """
        value = self.value.get(key)
        is_odd = not isinstance(value, str) and key in self.value
        return value if is_odd else self.text(key)

    def integer(self, key: str, minimum: int) -> int:
        """Return a whole number of at least ``minimum``."""
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise self.invalid(key, f"a whole number of at least {minimum}")
        return value

    def identifier(self, key: str) -> str:
        """Return a whole number, or a trimmed text of one line, as text."""
        value = self.get(key)
        if type(value) is int:  # not a bool, which is an int too
            return str(value) if value >= 0 else str(self.integer(key, 0))
        if not isinstance(value, str) or [value] != value.strip().splitlines():
            raise self.invalid(
                key, "a whole number or a line of text (not blank, no white space at its ends)"
            )
        return checked_text(value, f"{self.where}: {key!r}")

    def unique_identifier(self, key: str, known: dict[str, str], kind: str) -> str:
        """Return an `identifier` and add it to ``known``; raise an error if it is there already."""
        identifier = self.identifier(key)
        if identifier in known:
            problem = f"{kind} {identifier} occurs twice, first at {known[identifier]}"
            raise SettingError(self.where, problem, "remove one")
        known[identifier] = self.where
        return identifier

    def items(self, key: str) -> list[Any]:
        """Return a list."""
        value = self.get(key)
        if not isinstance(value, list):
            raise self.invalid(key, "a list")
        return value

    def numbers(self, key: str, count: int) -> tuple[float, ...]:
        """Return a list of ``count`` finite numbers."""
        value = self.items(key)
        if len(value) != count or not all(map(is_number, value)):
            raise self.invalid(key, f"a list of {count} finite numbers")
        return tuple(float(number) for number in value)

    def records(self, key: str) -> Iterator[Record]:
        """Yield the objects of a list."""
        for position, value in enumerate(self.items(key)):
            yield as_record(value, f"{self.where}: {key}[{position}]")

    def members(self) -> Iterator[tuple[str, Record]]:
        """Yield the object's keys with the objects that they hold."""
        for key, value in self.value.items():
            yield key, as_record(value, f"{self.where}: {shown(key)}")


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) < 2**53


def as_record(value: Any, where: str) -> Record:
    """Return ``value`` as a `Record`; raise an error if it is not an object.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, dict):
        raise SettingError(where, f"must be an object {{...}}: got {shown(value)}", "correct it")
    return Record(value, where)


def checked_text(value: str, where: str) -> str:
    """Return ``value`` after a check of its characters.

    Raises:
        ValueError: half of a surrogate pair or a NUL, which neither file name nor UTF-8 can hold.
    """
    if value.isascii() and "\0" not in value:
        return value
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise SettingError(
            where,
            f"incomplete surrogate pair at character {error.start}",
            "write the character whole",
        ) from error
    if "\0" in value:
        raise SettingError(where, "holds a NUL character", "remove it")
    return value


def shown(value: Any) -> str:
    """Describe a JSON value for an error message: its type and beginning."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, int) and abs(value) > 10**40:
        return "a number of more than 40 digits"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object from keys and values; raise an error for a repeated key.

    Raises:
        ValueError: a key twice.
    """
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {shown(twice)} occurs twice in one object", "remove one")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number", "write a finite number or leave it out")


DECODER = json.JSONDecoder(object_pairs_hook=unique_keys, parse_constant=_refuse_constant)


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Add the file's name to errors of `DECODER` within the context.

    Raises:
        ValueError: not JSON, NaN or Infinity, a key twice in one object, nesting too deep.
    """
    try:
        yield
    except json.JSONDecodeError as error:
        problem = f"not JSON at line {error.lineno} column {error.colno}: {error.msg}"
        raise SettingError(where, problem, "is the file truncated?") from error
    except ValueError as error:
        problem, *remedy = error.args
        raise SettingError(where, problem, *(remedy or ["correct it"])) from error
    except RecursionError as error:
        problem = "lists or objects nested too deep to be annotations"
        raise SettingError(where, problem, "give a file of annotations") from error


def parse_json(text: str, where: str) -> Any:
    """Parse JSON text.

    Raises:
        ValueError: see `explained`.
    """
    with explained(where):
        return DECODER.decode(text)


def load_json(path: str | Path) -> Record:
    """Load the object that a JSON file holds.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: not UTF-8, not strict JSON, or not an object.
    """
    return as_record(parse_json(read_text(path), str(path)), str(path))


def load_json_lines(path: str | Path) -> Iterator[Record]:
    """Yield the objects of a JSON Lines file, each with ``FILE:LINE``.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a line that is not UTF-8, not strict JSON, or not an object.
    """
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        yield as_record(parse_json(line, where), where)
