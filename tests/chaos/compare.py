"""Whether two result folders hold the same, clocks apart, and whether their files are whole."""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image
from safetensors import safe_open

from captioning.data.features.index import LOG_NAME, load_index
from captioning.data.features.store import FeatureStore
from captioning.vision.line_store import _read as read_lines

# Files and folders that tell of times, machines and restarts.
LEFT_OUT = ("timing.json", "versions.json", "lock", "logs", "failed.json")
LINES = "*.jsonl"
# The journal of a run that was killed before its first checkpoint is kept beside the new one.
SET_ASIDE = "curation.old-"
CLOCKS = ("date", "seconds", "command", "versions", "machine", "load", "wall", "rate", "timing")
PARTS = ("state_dict", "current_model_state", "optimizer_states", "epoch", "global_step")


def difference(first: Path, second: Path) -> str:
    """What differs first between two folders, or nothing."""
    names, others = ({_entry(name) for name in _files(folder)} for folder in (first, second))
    if names != others:
        return f"files: {', '.join(sorted(names ^ others)[:4])}"
    for name in sorted(names):
        if not _same(first / name, second / name):
            return name
    return ""


def _entry(name: str) -> str:
    """A file; the files of a store of lines, which its processes name by themselves, are one."""
    folder, _, file = name.rpartition("/")
    return f"{folder}/{LINES}" if re.fullmatch(r"\d+-[0-9a-f]{12}\.jsonl", file) else name


def damaged(folder: Path) -> list[str]:
    """Files that are not whole; temporary ones and the last line of those that grow are excused."""
    found = []
    for name in _files(folder):
        try:
            _read(folder / name)
        except Exception as error:  # noqa: BLE001 - each format has its own errors
            found.append(f"{name}: {type(error).__name__} {str(error)[:80]}")
    return found


def left_over(folder: Path) -> int:
    """Temporary files that were left behind."""
    return sum(path.name.startswith(".") for path in folder.rglob("*") if path.is_file())


def _files(folder: Path) -> list[str]:
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [
        path.as_posix()
        for path in paths
        if not any(part in LEFT_OUT or part.startswith((".", SET_ASIDE)) for part in path.parts)
        and path.suffix != ".lock"
    ]


def _same(first: Path, second: Path) -> bool:
    if first.name == "report.html" and first.parent.name != "curation":
        return True  # a run's page tells of times and restarts, as what is left out does
    if first.name == LINES:
        return _lines(first.parent) == _lines(second.parent)
    if first.suffix == ".ckpt":
        one, other = (_checkpoint(path) for path in (first, second))
        return _equal(one, other)
    if first.read_bytes() == second.read_bytes():
        return True
    if first.name == LOG_NAME:
        stores = zip(_store(first.parent), _store(second.parent), strict=True)
        return all(undisturbed.items() <= other.items() for undisturbed, other in stores)
    if first.suffix == ".bin" and first.with_name(LOG_NAME).is_file():
        return True  # read against the sums in the log, with it
    if first.name == "sweep.md":
        return _finished(first) == _finished(second)
    if first.name == "photos.json":
        return _checked_photos(first) == _checked_photos(second)
    if first.suffix == ".json":
        one, other = (_without_clocks(json.loads(p.read_text())) for p in (first, second))
        return one == other
    return False


def _finished(path: Path) -> list[str]:
    """A sweep's report, but which of its jobs had finished before a restart."""
    lines = path.read_text().splitlines()
    kept = [line for line in lines if " jobs: " not in line]
    return [line.replace("finished before", "finished") for line in kept]


def _lines(folder: Path) -> Mapping[str, Any]:
    """What a store of lines reads; the torn end that a killed process left is nothing."""
    lines = {key: item for file in folder.glob(LINES) for key, item in read_lines(file).items()}
    # Those of photos are kept by when the photos were written, too.
    return lines if folder.name != "photos" else Counter(map(str, lines.values()))


def _checked_photos(path: Path) -> Any:
    """Sizes of photos and what is wrong with them, but when they were written."""
    content = json.loads(path.read_text())
    return content | {"photos": {p: (s, told) for p, (s, _, told) in content["photos"].items()}}


def _store(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Rows and sums of a store's records, which hold, and the digests of photos.

    A restart may compute records in another order, and those of pictures that the last edits
    have brought, which a run that goes on to its end does not read; photos have another time.
    """
    FeatureStore.open(folder).verify()
    index = load_index(folder)
    records = {key: (index.counts[n], index.checks[n]) for key, n in index.positions.items()}
    return records, {path: digest for path, (_, _, digest) in index.paths.items()}


def _checkpoint(path: Path) -> dict[str, Any]:
    content = torch.load(path, map_location="cpu", weights_only=True)
    return {key: content.get(key) for key in PARTS}


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one == other


def _without_clocks(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_clocks(part)
            for key, part in value.items()
            if not any(word in key for word in CLOCKS)
        }
    return [_without_clocks(part) for part in value] if isinstance(value, list) else value


def _read(path: Path) -> None:
    if path.suffix == ".json":
        json.loads(path.read_text())
    elif path.suffix == ".jsonl":
        for line in path.read_text().split("\n")[:-1]:
            json.loads(line)
    elif path.suffix == ".yaml":
        yaml.safe_load(path.read_text())
    elif path.suffix == ".ckpt":
        with zipfile.ZipFile(path) as parts:
            assert parts.testzip() is None
    elif path.suffix == ".npz":
        with path.open("rb") as file, np.load(file) as arrays:
            assert all(arrays[name] is not None for name in arrays.files)
    elif path.suffix == ".safetensors":
        with safe_open(path, framework="pt") as file:
            assert list(file.keys())
    elif path.suffix in (".png", ".jpg", ".webp"):
        with Image.open(path) as image:
            image.load()
