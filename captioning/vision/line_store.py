"""Values by key that are kept on disk, by any number of processes at once."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def key_of(*parts: str) -> str:
    """24 hex digits that stand for the parts in their order."""
    text = json.dumps(parts, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


class LineStore:
    """Lines of JSON, a key and a value each, in a folder; it grows by appending.

    Each process appends to its own file and reads all files, so no locks are needed. The rest of a
    killed process's last line is skipped: that value is computed again.

    Args:
        folder: made when something is stored; None keeps values in memory alone.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self.folder = None if folder is None else Path(folder)
        self._values: dict[str, Any] | None = None
        self._file: Path | None = None

    def get(self, key: str) -> Any:
        """The value of a key, or None."""
        return self._loaded().get(key)

    def _loaded(self) -> dict[str, Any]:
        if self._values is None:
            files = [] if self.folder is None else sorted(self.folder.glob("*.jsonl"))
            self._values = {}
            for file in files:
                self._values |= _read(file)
        return self._values

    def put(self, values: Mapping[str, Any]) -> None:
        """Keep values, on disk when this returns.

        Raises:
            OSError: the folder cannot be written; earlier entries remain.
        """
        if not values:
            return
        self._loaded().update(values)
        if self.folder is None:
            return
        text = "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in values.items())
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._own_file(self.folder).open("a", encoding="utf-8", newline="\n") as file:
                file.write(text)
        except OSError as error:
            raise type(error)(
                error.errno,
                f"{error.strerror}; free space, or set CAPTIONING_CACHE or paths.cache= to another "
                "folder: earlier results are kept",
                str(self.folder),
            ) from error

    def _own_file(self, folder: Path) -> Path:
        if self._file is None or not self._file.name.startswith(f"{os.getpid()}-"):
            self._file = folder / f"{os.getpid()}-{secrets.token_hex(6)}.jsonl"
        return self._file


def _read(file: Path) -> dict[str, Any]:
    values = {}
    with file.open("rb") as lines:
        for line in lines:
            if item := _item(line):
                values[item[0]] = item[1]
    return values


def _item(line: bytes) -> list[Any] | None:
    """Key and value of a line; None for what a killed process left of one."""
    if not line.endswith(b"\n"):
        return None
    try:
        item = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_item = isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)
    return item if is_item else None
