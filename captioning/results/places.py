"""Files and folders that settings name: the same ones by another spelling, or in another place.

A run keeps in ``places.json`` what the files that its settings name hold, such as a pretrained
model: where they were moved, or lie elsewhere on another machine, they are known again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from captioning.results.started import real_path

FILE_NAME = "places.json"
# Keys that name files although their text may have no separator.
_NAMES = ("start_from", "pretrained", "weights", "imported", "folder", "path")
# Files by which a folder is known: weights, settings, words and lists, and none of its pictures.
_SUFFIXES = (
    *(".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".onnx", ".npy", ".npz", ".h5", ".hdf5"),
    *(".json", ".jsonl", ".jinja", ".txt", ".model", ".csv", ".tsv"),
)
_CHECKPOINTS = "checkpoints"  # of a run folder, whose other files come and go
_WHOLE, _BLOCK, _NUM_BLOCKS = 2**24, 2**20, 16  # bytes of a file that is read whole; of others


def is_same_place(old: Any, new: Any) -> bool:
    """Whether two texts are paths of one file or folder that is there; or all of two lists are."""
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_is_same, old, new))
    return _is_same(old, new)


def _is_same(old: Any, new: Any) -> bool:
    if old == new:
        return True
    are_texts = isinstance(old, str) and isinstance(new, str) and "\0" not in old + new
    return are_texts and real_path(old) == real_path(new) and real_path(new).exists()


def contents(values: Mapping[str, Any]) -> dict[str, str]:
    """What the files and folders hold that settings name.

    Args:
        values: of settings, by dotted key.

    Returns:
        32 hex digits by key; those of entries of a list by ``KEY.NUMBER``.
    """
    places = [(key, path) for name, value in values.items() for key, path in _paths(name, value)]
    known = {path: content_of(path) for path in {path for _, path in places}}
    return {key: known[path] for key, path in places}


def _paths(key: str, value: Any) -> Iterator[tuple[str, Path]]:
    if isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _paths(f"{key}.{number}", entry)
    elif isinstance(value, str) and "\0" not in value:
        is_named = os.sep in value or any(word in _NAMES for word in key.split(".")[-2:])
        if is_named and value and real_path(value).exists():
            yield key, real_path(value)


def content_of(path: Path) -> str:
    """32 hex digits of a SHA-256 of a file, or of the files by which a folder is known.

    Of a large file its size and 16 blocks of a MiB are read, which differ where weights do.
    """
    digest = hashlib.sha256()
    for file in _files(path):
        name = file.relative_to(path).as_posix() if file != path else ""
        digest.update(f"{name}\0{file.stat().st_size}\0".encode(errors="surrogateescape"))
        for block in _blocks(file):
            digest.update(block)
    return digest.hexdigest()[:32]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if (path / _CHECKPOINTS).is_dir():
        return sorted((path / _CHECKPOINTS).glob("[!.]*.ckpt"))
    return sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())


def _blocks(path: Path) -> Iterator[bytes]:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _WHOLE:
            yield file.read()
            return
        for number in range(_NUM_BLOCKS):
            file.seek(number * (size - _BLOCK) // (_NUM_BLOCKS - 1))
            yield file.read(_BLOCK)
