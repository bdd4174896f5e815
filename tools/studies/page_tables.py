"""Read records of studies, and write tables between the marks of a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from captioning.runtime.files import write_text

_MARKS = "<!-- table:{} -->", "<!-- /table:{} -->"


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read all lines of a JSON Lines file; empty if the file does not exist."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def fill(page: Path, tables: Mapping[str, Sequence[str]]) -> None:
    """Write tables, given as lines by name, between their marks; skip tables without marks."""
    text = page.read_text(encoding="utf-8")
    for name, rows in tables.items():
        begin, end = (mark.format(name) for mark in _MARKS)
        if begin not in text:
            continue
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = "\n".join([before + begin, *rows, end + after])
    write_text(page, text)


def share_of(part: int, whole: int) -> str:
    """Share in percent; a dash if the whole is 0."""
    return percent(part / whole if whole else None)


def percent(value: float | None) -> str:
    """Fraction in percent, or a dash for None."""
    return "-" if value is None else f"{value:.0%}"
