"""Key-value store on disk that several processes may use at the same time."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def key_of(*parts: str) -> str:
    """Hash the parts, in order, to 24 hex digits."""
    text = json.dumps(parts, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


class LineStore:
    """Append-only store of JSON lines in a folder, with a key and a value per line.

    Each process appends to its own file and reads all files, so no locks are needed. If a process
    is killed, its incomplete last line is skipped and the value is computed again.

    Args:
        folder: folder, created on the first write; None: memory only.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self.folder = None if folder is None else Path(folder)
        self._values: dict[str, Any] | None = None
        self._file: Path | None = None

    def get(self, key: str) -> Any:
        """Return the value of a key, or None."""
        return self._loaded().get(key)

    def _loaded(self) -> dict[str, Any]:
        if self._values is None:
            files = [] if self.folder is None else sorted(self.folder.glob("*.jsonl"))
            self._values = {}
            for file in files:
                self._values |= _read(file)
        return self._values

    def put(self, values: Mapping[str, Any]) -> None:
        """Store values on disk before returning.

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
                f"{error.strerror}; free disk space, or set CAPTIONING_CACHE or paths.cache= to "
                "another folder: earlier results are kept",
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
    """Parse key and value of a line; None for an incomplete line of a killed process."""
    if not line.endswith(b"\n"):
        return None
    try:
        item = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_item = isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)
    return item if is_item else None
