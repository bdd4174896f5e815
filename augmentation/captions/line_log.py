"""Append complete lines of JSON to a file, so that a killed run resumes after the last line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def as_line(value: Any) -> str:
    """Encode a value as one line of JSON, without the line break."""
    return json.dumps(value, ensure_ascii=False)


def read_lines(path: Path) -> Iterator[Any]:
    """Read the values of all lines of a JSON Lines file."""
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def cut_to_complete_lines(path: Path) -> int:
    """Cut off the incomplete last line of a killed run; create the file if it is missing.

    Returns:
        The number of remaining lines.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    number = size = 0
    with path.open("a+b") as file:
        file.seek(0)
        for line in file:
            if line.endswith(b"\n"):
                number, size = number + 1, size + len(line)
        file.truncate(size)
    return number


def cut_to_lines(path: Path, *, first: int, step: int) -> int:
    """Cut the file to ``first`` lines plus a multiple of ``step`` lines, or to an empty file.

    The remaining lines are then computed in the same groups as in an uninterrupted run.
    """
    number = cut_to_complete_lines(path)
    kept = first + (number - first) // step * step if number >= first else 0
    if kept < number:
        with path.open("r+b") as file:
            for _ in range(kept):
                file.readline()
            file.truncate(file.tell())
    return kept
