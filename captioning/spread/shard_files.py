"""Files of shards: records, and who computed them. They are written whole or not at all."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from captioning.runtime.files import write_atomically, write_lines, written_lines
from captioning.spread.base import Shard

# Seconds until other machines see a new file; network disks keep old lists of names for a while.
VISIBLE_AFTER = 30.0
HEAD = "head"


def write_shard(shard: Shard, head: Any, records: Sequence[Any]) -> None:
    """Write a shard's records with a head of plain values.

    Raises:
        ValueError: not one record an item.
        OSError: it cannot be written.
    """
    if len(records) != len(shard.items):
        raise ValueError(f"{len(records)} records of {len(shard.items)} items")
    if shard.path.suffix == ".jsonl":
        lines = (json.dumps(value, ensure_ascii=False) for value in (head, *records))
        write_lines(shard.path, lines)
        return
    arrays = {str(place): np.ascontiguousarray(record) for place, record in enumerate(records)}
    sums = [zlib.crc32(array.tobytes()) for array in arrays.values()]
    note = {HEAD: json.dumps({HEAD: head, "crc32": sums})}
    write_atomically(shard.path, lambda part: save_file(arrays, part, metadata=note))


def read_shard(shard: Shard) -> tuple[Any, list[Any]] | None:
    """Head and records of a shard; None where there is no file, or a damaged one."""
    try:
        if shard.path.suffix == ".jsonl":
            head, *records = map(json.loads, written_lines(shard.path))
        else:
            head, records = _read_arrays(shard)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return None
    return (head, records) if len(records) == len(shard.items) else None


def _read_arrays(shard: Shard) -> tuple[Any, list[np.ndarray]]:
    with safe_open(shard.path, framework="numpy") as file:
        about = json.loads(file.metadata()[HEAD])
        arrays = [file.get_tensor(str(place)) for place in range(len(shard.items))]
    if [zlib.crc32(array.tobytes()) for array in arrays] != about["crc32"]:
        raise ValueError(f"{shard.path}: damaged")
    return about[HEAD], arrays


def appears(path: Path, seconds: float = VISIBLE_AFTER) -> bool:
    """Whether a file that another machine wrote is here, or comes within some seconds."""
    until = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True
