"""Features of photos in one append-only, memory-mapped file.

A store is a folder with two files. ``features.bin`` holds rows of D ``float16`` values, one row per
region; a record is the run of rows of one photo. ``index.json`` maps photos to rows. It is replaced
atomically after the rows are on disk. So readers never see half a record, and the next writer cuts
off rows that no index names (of a killed run).

Records are keyed by content: a photo under two names is stored once, and a changed photo under its
old name is another record. An entry per path (size and time of change) avoids hashing a photo
twice.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from captioning.files import write_json

DATA_NAME, INDEX_NAME, LOCK_NAME = "features.bin", "index.json", "lock"
FORMAT = 1
KINDS = ("grid", "regions", "imported")
REMEDY = "build them with: captioning prepare data=NAME"
Box = tuple[float, float, float, float]


@dataclass(kw_only=True)
class FeatureIndex:
    """What ``index.json`` holds.

    Attributes:
        identity: of the backbone, or name of the imported file.
        kind: ``"grid"``, ``"regions"`` or ``"imported"``.
        image_size: side in pixels that photos were resized to; 0 if imported.
        dim: feature size D.
        records: ``key -> (first row, number of rows)``, in order of writing.
        paths: ``absolute path -> (bytes, mtime in ns, SHA-1 of the bytes)``.
    """

    identity: str
    kind: str
    image_size: int
    dim: int
    records: dict[str, tuple[int, int]] = field(default_factory=dict)
    paths: dict[str, tuple[int, int, str]] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        """Rows that belong to records."""
        return sum(next(reversed(self.records.values()))) if self.records else 0

    def save(self, folder: Path) -> None:
        """Replace the folder's index in one step."""
        content = {
            "format": FORMAT,
            "identity": self.identity,
            "kind": self.kind,
            "image_size": self.image_size,
            "dim": self.dim,
            "records": self.records,
            "paths": self.paths,
        }
        write_json(folder / INDEX_NAME, content, indent=None)


def load_index(folder: Path) -> FeatureIndex:
    """The index of a store.

    Raises:
        FileNotFoundError: there is no store in ``folder``.
        ValueError: the index is damaged or disagrees with the data file.
    """
    path = folder / INDEX_NAME
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no features here; {REMEDY}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}, this version reads {FORMAT}")
        index = FeatureIndex(
            identity=str(content["identity"]),
            kind=str(content["kind"]),
            image_size=int(content["image_size"]),
            dim=int(content["dim"]),
            records={key: (int(a), int(b)) for key, (a, b) in content["records"].items()},
            paths={key: (int(a), int(b), str(c)) for key, (a, b, c) in content["paths"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: damaged ({error!r}); delete {folder} and build anew") from error
    _check_index(index, folder)
    return index


def _check_index(index: FeatureIndex, folder: Path) -> None:
    path = folder / INDEX_NAME
    row = 0
    if index.kind not in KINDS or index.dim < 1:
        raise ValueError(f"{path}: damaged (kind {index.kind!r}, dim {index.dim}); delete {folder}")
    for key, (start, count) in index.records.items():
        if start != row or count < 1:
            raise ValueError(f"{path}: damaged (record {key}); delete {folder} and build anew")
        row += count
    data = folder / DATA_NAME
    size = data.stat().st_size if data.is_file() else 0
    if size < row * index.dim * 2:
        raise ValueError(
            f"{data}: holds {size} bytes where the index names {row * index.dim * 2}: the file was "
            f"cut or not copied in full; copy it again, or delete {folder} and build anew"
        )


def hash_file(path: Path) -> str:
    """SHA-1 of a file's bytes (of content, not for security), 40 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.sha1(usedforsecurity=False)).hexdigest()


def record_key(digest: str, boxes: Sequence[Box] | None = None) -> str:
    """Key of a photo's record: its SHA-1, and for region features that of its boxes too."""
    if boxes is None:
        return digest
    flat = np.asarray(boxes, dtype="<f4").reshape(-1, 4)
    return f"{digest}:{hashlib.sha1(flat.tobytes(), usedforsecurity=False).hexdigest()[:16]}"


def absolute(path: str | Path) -> str:
    """How a path is written in the index: absolute, links kept."""
    return os.path.abspath(path)


def known_digest(index: FeatureIndex, path: str) -> str | None:
    """Digest of a photo without reading it; None where it is unknown or the file has changed.

    Where the photo is not on this machine, the recorded digest counts: features can be copied to a
    cluster without their photos.
    """
    entry = index.paths.get(path)
    if entry is None:
        return None
    try:
        stat = os.stat(path)
    except OSError:
        return entry[2]
    return entry[2] if (stat.st_size, stat.st_mtime_ns) == entry[:2] else None


class FeatureStore:
    """Reads the features of photos; cheap to open, safe in `DataLoader` workers.

    It holds the records that the index named when it was opened. Copies sent to other processes map
    the file anew, and share its pages.

    Attributes:
        folder: where it lies.
        identity: of the backbone.
        kind: ``"grid"``, ``"regions"`` or ``"imported"``.
        dim: feature size D.
        max_regions: most regions R of any record.
    """

    def __init__(self, *, folder: Path, index: FeatureIndex) -> None:
        """A store over an index that was read already; usually `open` or `ensure_features`."""
        self.folder = Path(folder)
        self.identity, self.kind, self.dim = index.identity, index.kind, index.dim
        self._index: FeatureIndex | None = index
        table = np.array(list(index.records.values()), dtype=np.int64).reshape(-1, 2)
        self._starts, self._counts = table[:, 0], table[:, 1]
        self.max_regions = int(self._counts.max(initial=0))
        self._even = bool((self._counts == self.max_regions).all())
        self._position_of_key: dict[str, int] | None = None
        self._boxes: dict[str, tuple[Box, ...]] = {}
        self._rows: np.ndarray | None = None

    @classmethod
    def open(cls, folder: str | Path) -> FeatureStore:
        """The store in ``folder``.

        Raises:
            FileNotFoundError: there is none.
            ValueError: it is damaged.
        """
        return cls(folder=Path(folder), index=load_index(Path(folder)))

    def __len__(self) -> int:
        """Number of records."""
        return len(self._starts)

    def __getstate__(self) -> dict[str, Any]:
        # A memory map pickles as a copy of all its data, and the index is large: both are re-read.
        return {**self.__dict__, "_rows": None, "_index": None, "_position_of_key": None}

    def remember_boxes(self, boxes: dict[str, tuple[Box, ...]]) -> None:
        """Boxes by absolute path, so that `positions` of region features needs paths alone."""
        self._boxes = boxes

    def positions(
        self, paths: Sequence[str | Path], boxes: Sequence[Sequence[Box]] | None = None
    ) -> np.ndarray:
        """Positions ``(len(paths),) int64`` of photos, for `read`.

        Args:
            paths: photo files.
            boxes: boxes of each photo, for ``kind="regions"``; the store that `ensure_features`
                returned knows them already.

        Raises:
            ValueError: photos without features, or whose file has changed since.
        """
        if self.kind == "imported":
            raise ValueError(
                f"{self.folder}: imported features are keyed by image id: use positions_of_ids"
            )
        index, names = self._loaded_index(), [absolute(path) for path in paths]
        keys: list[str | None] = []
        for number, name in enumerate(names):
            digest = known_digest(index, name)
            if digest is None and os.path.isfile(name):
                digest = hash_file(Path(name))
            photo_boxes = self._boxes_of(name, None if boxes is None else boxes[number])
            keys.append(None if digest is None else record_key(digest, photo_boxes))
        return self._find(keys, names, "photos")

    def positions_of_ids(self, image_ids: Sequence[str]) -> np.ndarray:
        """Positions ``(len(image_ids),) int64`` in a store of imported features.

        Raises:
            ValueError: images without features, or a store that is keyed by content.
        """
        if self.kind != "imported":
            raise ValueError(f"{self.folder}: {self.kind} features go by photo: use positions")
        return self._find(list(image_ids), list(image_ids), "images")

    def read(self, positions: np.ndarray | Sequence[int]) -> tuple[Tensor, Tensor | None]:
        """Features of I photos.

        Args:
            positions: ``(I,)`` from `positions`.

        Returns:
            ``(I, R, D) float16``, R the most regions among these photos, zero where there is none,
            and ``(I, R) bool``, True where a region exists; None if all exist.
        """
        where = np.asarray(positions, dtype=np.int64)
        rows = self._mapped()
        if self._even:
            records = rows.reshape(-1, self.max_regions, self.dim)
            return torch.from_numpy(records[where]), None
        counts, starts = self._counts[where], self._starts[where]
        width = int(counts.max(initial=0))
        features = np.zeros((len(where), width, self.dim), dtype=np.float16)
        for target, start, count in zip(features, starts, counts, strict=True):
            target[:count] = rows[start : start + count]
        mask = np.arange(width) < counts[:, None]
        return torch.from_numpy(features), None if mask.all() else torch.from_numpy(mask)

    def _loaded_index(self) -> FeatureIndex:
        if self._index is None:
            self._index = load_index(self.folder)
        return self._index

    def _mapped(self) -> np.ndarray:
        if self._rows is None:
            num_rows = int(self._counts.sum())
            path = self.folder / DATA_NAME
            self._rows = (
                np.memmap(path, dtype=np.float16, mode="r", shape=(num_rows, self.dim))
                if num_rows
                else np.zeros((0, self.dim), dtype=np.float16)
            )
        return self._rows

    def _boxes_of(self, name: str, provided: Sequence[Box] | None) -> Sequence[Box] | None:
        if self.kind != "regions":
            return None
        boxes = self._boxes.get(name) if provided is None else provided
        if boxes is None:
            raise ValueError(f"{self.folder}: features of {name} go by its boxes: pass boxes=")
        return boxes

    def _find(self, keys: list[str | None], names: list[str], kind: str) -> np.ndarray:
        if self._position_of_key is None:
            records = list(self._loaded_index().records)[: len(self)]
            self._position_of_key = {key: position for position, key in enumerate(records)}
        lookup = self._position_of_key
        found_positions = [-1 if key is None else lookup.get(key, -1) for key in keys]
        positions = np.array(found_positions, dtype=np.int64)
        missing = [names[i] for i in np.flatnonzero(positions < 0)]
        if missing:
            raise ValueError(
                f"{self.folder}: no features for {len(missing)} of {len(names)} {kind} (never "
                f"built, or the file has changed), such as {', '.join(missing[:3])}; {REMEDY}"
            )
        return positions


class FeatureWriter:
    """Appends records to a store; the caller holds the folder's lock."""

    def __init__(self, *, folder: Path, index: FeatureIndex) -> None:
        """Open ``folder`` for appending and cut off rows that no index names."""
        self.folder, self.index = folder, index
        self._file = (folder / DATA_NAME).open("ab")
        self._row_bytes = index.dim * 2
        self._committed = self._rows = index.num_rows
        self._pending: dict[str, tuple[int, int]] = {}
        self._file.truncate(self._rows * self._row_bytes)

    def __enter__(self) -> FeatureWriter:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._file.close()
        finally:
            os.truncate(self.folder / DATA_NAME, self._committed * self._row_bytes)

    def append(self, key: str, features: np.ndarray) -> None:
        """Add one record of ``(R, D) float16``; it counts from the next `commit` on."""
        if features.dtype != np.float16 or features.ndim != 2 or len(features) < 1:
            raise ValueError(
                f"{key}: record must be (R, D) float16: got {features.shape} {features.dtype}"
            )
        if features.shape[1] != self.index.dim:
            raise ValueError(
                f"{self.folder}: features must have {self.index.dim} values: got "
                f"{features.shape[1]} for {key}; another backbone needs another folder"
            )
        with _explained(self.folder):
            self._file.write(np.ascontiguousarray(features).data)
        self._pending[key] = (self._rows, len(features))
        self._rows += len(features)

    def commit(self) -> None:
        """Make what was appended part of the store, safe against a kill."""
        with _explained(self.folder):
            self._file.flush()
            os.fsync(self._file.fileno())
            self.index.records.update(self._pending)
            self.index.save(self.folder)
        self._committed, self._pending = self._rows, {}


class _explained:
    """Says what to do when the disk is full."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(
                error.errno,
                f"{self.folder}: the disk is full; what was committed before is valid. Free some "
                "space or set CAPTIONING_CACHE to another disk, and start again: it goes on there",
            ) from error
