"""Index of a feature store: the location of each record; append-only.

``index.json`` is the header, written once. ``records.log`` has a line for every block of records
that was committed: the CRC-32 of the line, then JSON. A killed writer leaves at most a torn last
line, which readers leave out and the next writer cuts off. Rows are numbered through all shards,
``features.bin``, ``features-0001.bin`` and so on; a block never crosses from one into the next.

Format 1 had all of it in ``index.json``, one shard and no checksums. It is read as before, and
brought to format 2 when something is added.
"""

from __future__ import annotations

import json
import os
import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from captioning.runtime.files import write_json

DATA_NAME, BOXES_NAME = "features.bin", "boxes.bin"
INDEX_NAME, LOG_NAME, LOCK_NAME = "index.json", "records.log", "lock"
FORMAT = 2
KINDS = ("grid", "regions", "imported")
REMEDY = "build them with: captioning prepare data=NAME"
UNCHECKED = -1  # in place of a checksum, for records of format 1
BOX_BYTES = 16  # four float32
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)

PathEntry = tuple[int, int, str]


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return DATA_NAME if number == 0 else f"features-{number:04d}.bin"


@dataclass(kw_only=True)
class Block:
    """Records that are committed together, as one line of ``records.log``.

    Attributes:
        shard: shard of their rows.
        keys: keys of the records.
        counts: rows of each.
        checks: CRC-32 of each record's rows (and boxes), or `UNCHECKED`.
        sizes: width and height of each photo in pixels, 0 where unknown; empty if all are.
        paths: ``absolute path -> (bytes, mtime in ns, SHA-1 of the bytes)``.
    """

    shard: int = 0
    keys: list[str] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    checks: list[int] = field(default_factory=list)
    sizes: list[tuple[float, float]] = field(default_factory=list)
    paths: dict[str, PathEntry] = field(default_factory=dict)

    def line(self) -> bytes:
        """The block as a line of ``records.log``."""
        content = {
            "shard": self.shard,
            "keys": self.keys,
            "counts": self.counts,
            "checks": self.checks,
        }
        if any(any(size) for size in self.sizes):
            content["sizes"] = self.sizes
        if self.paths:
            content["paths"] = self.paths
        text = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
        return b"%08x %s\n" % (zlib.crc32(text), text)


@dataclass(kw_only=True)
class FeatureIndex:
    """Index of a store's content.

    Attributes:
        identity: identity of the backbone, or name of the imported features.
        kind: ``"grid"``, ``"regions"`` or ``"imported"``.
        image_size: side in pixels that photos were resized to; 0 if imported.
        dim: feature size D.
        has_boxes: ``boxes.bin`` has a box for every row.
        positions: ``key -> position`` of each record, in order of writing.
        counts: rows of each record.
        checks: CRC-32 of each record, or `UNCHECKED`.
        sizes: width and height of each record's photo, one after the other; 0 where unknown.
        shard_rows: rows of each shard.
        paths: ``absolute path -> (bytes, mtime in ns, SHA-1 of the bytes)``.
        log_bytes: bytes of the whole lines of ``records.log``.
        is_current: whether it lies in the present format.
    """

    identity: str
    kind: str
    image_size: int
    dim: int
    has_boxes: bool = False
    positions: dict[str, int] = field(default_factory=dict)
    counts: array[int] = field(default_factory=lambda: array("q"))
    checks: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[float] = field(default_factory=lambda: array("d"))
    shard_rows: list[int] = field(default_factory=lambda: [0])
    paths: dict[str, PathEntry] = field(default_factory=dict)
    log_bytes: int = 0
    is_current: bool = True

    @property
    def num_rows(self) -> int:
        """Number of rows that belong to records."""
        return sum(self.shard_rows)

    @property
    def row_bytes(self) -> int:
        """Bytes per row of features."""
        return self.dim * 2

    def add(self, block: Block) -> None:
        """Add a block to the index.

        Raises:
            ValueError: its lists differ in length, a key is there already, or its shard is neither
                the last nor the next.
        """
        if block.shard not in (len(self.shard_rows) - 1, len(self.shard_rows)):
            raise ValueError(f"shard {block.shard} after shard {len(self.shard_rows) - 1}")
        if not len(block.keys) == len(block.counts) == len(block.checks):
            raise ValueError("keys, counts and checks of different lengths")
        if min(block.counts, default=1) < 1:
            raise ValueError("a record without rows")
        for number, key in enumerate(block.keys, start=len(self.positions)):
            if self.positions.setdefault(key, number) != number:
                raise ValueError(f"record {key} twice")
        if block.shard == len(self.shard_rows):
            self.shard_rows.append(0)
        self.shard_rows[block.shard] += sum(block.counts)
        self.counts.extend(block.counts)
        self.checks.extend(block.checks)
        sizes = block.sizes or [(0.0, 0.0)] * len(block.keys)
        self.sizes.extend(side for size in sizes for side in size)
        self.paths.update(block.paths)

    def save_header(self, folder: Path) -> None:
        """Write ``index.json`` in one step."""
        names = ("identity", "kind", "image_size", "dim", "has_boxes")
        content = {"format": FORMAT, **{name: getattr(self, name) for name in names}}
        write_json(folder / INDEX_NAME, content)


def load_index(folder: Path) -> FeatureIndex:
    """Load the index of a store.

    Raises:
        FileNotFoundError: ``folder`` has no store.
        ValueError: the index is damaged or disagrees with the data files.
    """
    path = folder / INDEX_NAME
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no features here; {REMEDY}")
    try:
        index = _read_index(folder, json.loads(path.read_text(encoding="utf-8")))
    except _DAMAGE as error:
        raise ValueError(f"{path}: damaged ({error!r}); delete {folder} and build again") from error
    _check_files(index, folder)
    return index


def _read_index(folder: Path, content: Any) -> FeatureIndex:
    if content["format"] not in (1, FORMAT):
        raise ValueError(f"format {content['format']!r}, this version reads 1 and {FORMAT}")
    index = FeatureIndex(
        identity=str(content["identity"]),
        kind=str(content["kind"]),
        image_size=int(content["image_size"]),
        dim=int(content["dim"]),
        has_boxes=bool(content.get("has_boxes", False)),
        is_current=content["format"] == FORMAT,
    )
    if index.kind not in KINDS or index.dim < 1:
        raise ValueError(f"kind {index.kind!r}, dim {index.dim}")
    if index.is_current:
        _read_log(index, folder / LOG_NAME)
    else:
        index.add(_block_of_format_1(content))
    return index


def _block_of_format_1(content: Mapping[str, Any]) -> Block:
    block, row = Block(), 0
    for key, (start, count) in content["records"].items():
        if int(start) != row or int(count) < 1:
            raise ValueError(f"record {key}")
        block.keys.append(key)
        block.counts.append(int(count))
        row += int(count)
    block.checks = [UNCHECKED] * len(block.keys)
    block.paths = _paths(content["paths"])
    return block


def _read_log(index: FeatureIndex, path: Path) -> None:
    lines = path.read_bytes().split(b"\n") if path.is_file() else [b""]
    # What follows the last line's end is empty, or the line that a writer was killed in.
    for number, line in enumerate(lines[:-1], start=1):
        text = line[9:]
        if line[:9] != b"%08x " % zlib.crc32(text):
            raise ValueError(f"{LOG_NAME}, line {number}")
        index.add(_block(json.loads(text)))
        index.log_bytes += len(line) + 1


def _block(content: Mapping[str, Any]) -> Block:
    return Block(
        shard=int(content["shard"]),
        keys=[str(key) for key in content["keys"]],
        counts=[int(count) for count in content["counts"]],
        checks=[int(check) for check in content["checks"]],
        sizes=_sizes(content.get("sizes") or [], len(content["keys"])),
        paths=_paths(content.get("paths") or {}),
    )


def _sizes(values: Sequence[Any], number: int) -> list[tuple[float, float]]:
    if values and len(values) != number:
        raise ValueError("sizes and keys of different lengths")
    return [(float(width), float(height)) for width, height in values]


def _paths(values: Mapping[str, Any]) -> dict[str, PathEntry]:
    return {path: (int(size), int(time), str(sha)) for path, (size, time, sha) in values.items()}


def _check_files(index: FeatureIndex, folder: Path) -> None:
    """Raise an error for data files shorter than the index says."""
    sizes = {
        shard_name(number): rows * index.row_bytes for number, rows in enumerate(index.shard_rows)
    }
    if index.has_boxes:
        sizes[BOXES_NAME] = index.num_rows * BOX_BYTES
    for name, expected in sizes.items():
        path = folder / name
        size = os.path.getsize(path) if path.is_file() else 0
        if size < expected:
            raise ValueError(
                f"{path}: holds {size} bytes where the index names {expected}: the file was cut or "
                f"not copied in full; copy it again, or delete {folder} and build again"
            )
