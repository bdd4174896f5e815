"""Run-folder files, written to a temporary name and renamed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_json(path: Path, content: Any) -> None:
    """Write ``content`` as JSON; a reader sees the old file or the whole new one."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text; a reader sees the old file or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(
            error.errno, f"cannot write {path} ({error.strerror}); free space or choose run_dir="
        ) from error


def read_json(path: Path) -> Any:
    """Content of a JSON file.

    Raises:
        FileNotFoundError: it does not exist.
        ValueError: it is not JSON.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; is {path.parent} a run folder?")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON ({error}); restore it or run again") from error
