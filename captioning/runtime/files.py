"""Atomic reading and writing of small files, and checks that paths stay in their folders."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file in the same folder, then put it in place.

    If ``write`` or the disk fails, the former file remains. Missing folders are created.

    Raises:
        OSError: the folder cannot be written, or the disk is full; the message names the file.
    """
    path = Path(path)
    part = path.with_name(f".{secrets.token_hex(6)}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        _discard(part)
        raise type(error)(
            error.errno, f"{error.strerror}; free space or choose another place", str(path)
        ) from error
    except BaseException:
        _discard(part)
        raise


def _discard(part: Path) -> None:
    """Remove a temporary file if it exists."""
    if part.exists():
        part.unlink()


def remove_unfinished(folder: Path, suffix: str) -> None:
    """Remove the temporary files that a killed process left behind.

    Args:
        folder: folder that `write_atomically` wrote into.
        suffix: suffix of the files, such as ``".ckpt"``.
    """
    for part in folder.glob(f".*{suffix}"):
        part.unlink(missing_ok=True)


def check_inside(path: Path, folders: Iterable[Path], *, remedy: str) -> Path:
    """Resolve a path and check that it lies in one of the folders; the file need not exist.

    Args:
        path: path as read from a third party's file.
        folders: folders to search in order.
        remedy: remedy for the message.

    Raises:
        ValueError: the path leads out of the folders, also by ``..`` or a symbolic link.
    """
    tried = []
    try:
        real = path.resolve()
        for folder in folders:
            if real.is_relative_to(folder.resolve()):
                return real
            tried.append(str(folder))
    except (OSError, RuntimeError, ValueError) as error:  # links in circles, a null character
        raise ValueError(f"{str(path)!r} is not a valid path: {error}") from error
    more = f" and {len(tried) - 3} others" if len(tried) > 3 else ""
    raise ValueError(f"{str(path)!r} lies outside {', '.join(tried[:3])}{more}: {remedy}")


def is_taken(folder: Path) -> bool:
    """Whether a path is taken: by a file, a non-empty folder or a broken link."""
    is_there = folder.exists() or folder.is_symlink()
    return is_there and (not folder.is_dir() or any(folder.iterdir()))


def write_text(path: str | Path, text: str) -> None:
    """Write text to a file in UTF-8, atomically."""
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8", newline="\n"))


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Write lines of text, given without line ends, to a file."""

    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)

    write_atomically(path, write)


def written_lines(path: str | Path) -> list[str]:
    """Split a text into the lines of `write_lines`: at newlines only, not at Unicode separators."""
    text = Path(path).read_text(encoding="utf-8").removesuffix("\n")
    return text.split("\n") if text else []


def write_json(path: str | Path, value: Any, *, indent: int | None = 1) -> None:
    """Write plain values as JSON, indented for people unless ``indent`` is None.

    Raises:
        ValueError: a value has no form in JSON (NaN, infinity).
    """
    try:
        text = json.dumps(value, indent=indent, allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        raise ValueError(f"{path} cannot be written: {error}") from error
    write_text(path, text + "\n")


def read_json(path: str | Path, kind: type | None = None) -> Any:
    """Read a JSON file, and check that it holds the expected type.

    Args:
        path: the file's path.
        kind: type that the file must hold, ``dict`` or ``list``; None: any type.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not JSON, or holds another type.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; is {path.parent} a run folder?")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}); restore it or run again") from error
    if kind is not None and not isinstance(value, kind):
        wanted = {dict: "an object {...}", list: "a list [...]"}.get(kind, kind.__name__)
        raise ValueError(f"{path} must hold {wanted}: got {value!r:.40}; restore it or run again")
    return value
