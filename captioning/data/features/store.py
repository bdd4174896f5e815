"""Feature store: features of photos in memory-mapped files.

A store is a folder: an index (`captioning.data.features.index`) and shards with rows of D
``float16`` values, a row per region. A record is the run of rows of a photo; ``boxes.bin`` has the
box of every row where there are boxes. Rows are on disk before the index names them, so readers
never see half a record.

Records are keyed by content: a photo under two names is stored once, and a changed photo under its
old name is another record. An entry per path (size and time of change) avoids hashing a photo
twice. Imported features are keyed by image id instead.

Each record has a checksum, which is verified when the record is first read.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from captioning.data.features.index import REMEDY, FeatureIndex, load_index
from captioning.data.features.stored_rows import MappedRows
from captioning.data.photo_folder import PHOTO_SUFFIXES
from captioning.types import Box
from captioning.vision.photo_places import open_photo, photo_exists, photo_stamp

_SUFFIXES = PHOTO_SUFFIXES | {".npz", ".npy"}
_NUMBERED = re.compile(r"(?:(?:coco_)?(?:train|val|test)20\d\d_|flickr30k_)?0*(\d+)", re.IGNORECASE)


def plain_id(name: str) -> str:
    """Return the image id that a file name stands for.

    ``COCO_val2014_000000000042.jpg``, ``coco_val2014_000000000042.npz`` and ``000000000042`` are
    the image ``42``; of other names the folder and the suffix are left out.
    """
    path = PurePosixPath(name)
    stem = path.stem if path.suffix.lower() in _SUFFIXES else path.name
    match = _NUMBERED.fullmatch(stem)
    return match[1] if match else stem


def plain_ids(keys: Mapping[str, int]) -> dict[str, int]:
    """Return positions by `plain_id`, without ids shared by several keys."""
    positions: dict[str, int] = {}
    shared: set[str] = set()
    for key, position in keys.items():
        name = plain_id(key)
        if positions.setdefault(name, position) != position:
            shared.add(name)
    return {name: position for name, position in positions.items() if name not in shared}


def find_by_id(keys: Mapping[str, int], image_ids: Sequence[str]) -> list[int]:
    """Return positions of images, -1 for missing images.

    Args:
        keys: positions by the names in the store.
        image_ids: image ids of annotations; an id that is not a key is looked up by `plain_id`.
    """
    positions = [keys.get(image_id, -1) for image_id in image_ids]
    if -1 not in positions:
        return positions
    plain = plain_ids(keys)
    return [
        plain.get(plain_id(image_id), -1) if position < 0 else position
        for image_id, position in zip(image_ids, positions, strict=True)
    ]


IMPORT_REMEDY = "import the files that hold them: captioning import-features FILE... --folder"


def hash_file(path: Path) -> str:
    """Return the SHA-1 of a photo's file (not for security), 40 hex digits."""
    with open_photo(path) as file:
        return hashlib.file_digest(file, lambda: hashlib.sha1(usedforsecurity=False)).hexdigest()


def record_key(digest: str, boxes: Sequence[Box] | None = None) -> str:
    """Return the key of a photo's record: its SHA-1, with region features also its boxes' SHA-1."""
    if boxes is None:
        return digest
    flat = np.asarray(boxes, dtype="<f4").reshape(-1, 4)
    return f"{digest}:{hashlib.sha1(flat.tobytes(), usedforsecurity=False).hexdigest()[:16]}"


def absolute(path: str | Path) -> str:
    """Return a path as written in the index: absolute, with links unresolved."""
    return os.path.abspath(path)


def known_digest(index: FeatureIndex, path: str) -> str | None:
    """Return a photo's hash without reading it; None if unknown or if the file has changed.

    Where the photo is not on this machine, the recorded digest counts: features can be copied to a
    cluster without their photos.
    """
    entry = index.paths.get(path)
    if entry is None:
        return None
    try:
        stamp = photo_stamp(path)
    except OSError:
        return entry[2]
    return entry[2] if stamp == entry[:2] else None


class FeatureStore:
    """Reader of stored photo features; cheap to open, safe in `DataLoader` workers.

    It holds the records that the index named when it was opened. Copies sent to other processes map
    the same files, and share their pages.

    Attributes:
        folder: folder of the store.
        identity: the backbone's identity.
        kind: ``"grid"``, ``"regions"`` or ``"imported"``.
        dim: feature size D.
        has_boxes: whether it holds the boxes of its regions.
        max_regions: most regions R of any record.
    """

    def __init__(self, *, folder: Path, index: FeatureIndex) -> None:
        """Create a store from a loaded index; `open` or `ensure_features` are the usual ways."""
        self.folder = Path(folder)
        self.identity, self.kind, self.dim = index.identity, index.kind, index.dim
        self.has_boxes = index.has_boxes
        self._index: FeatureIndex | None = index
        self._data = MappedRows(folder=self.folder, index=index, name_of=self._key_at)
        self._sizes = np.array(index.sizes, dtype=np.float64).reshape(-1, 2)
        self.max_regions = self._data.width
        self._boxes: dict[str, tuple[Box, ...]] = {}

    @classmethod
    def open(cls, folder: str | Path) -> FeatureStore:
        """Open the store in ``folder``.

        Raises:
            FileNotFoundError: there is none.
            ValueError: it is damaged.
        """
        return cls(folder=Path(folder), index=load_index(Path(folder)))

    def __len__(self) -> int:
        """Number of records."""
        return len(self._data.counts)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_index": None}  # it is large, and read again where it is needed

    def remember_boxes(self, boxes: dict[str, tuple[Box, ...]]) -> None:
        """Store boxes by absolute path, so that `positions` of region features needs only paths."""
        self._boxes = boxes

    def positions(
        self, paths: Sequence[str | Path], boxes: Sequence[Sequence[Box]] | None = None
    ) -> np.ndarray:
        """Return positions ``(len(paths),) int64`` of photos, for `read`.

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
        positions: list[int] = []
        for number, name in enumerate(names):
            digest = known_digest(index, name)
            if digest is None and photo_exists(name):
                digest = hash_file(Path(name))
            photo_boxes = self._boxes_of(name, None if boxes is None else boxes[number])
            key = "" if digest is None else record_key(digest, photo_boxes)
            positions.append(index.positions.get(key, -1))
        return self._all_there(positions, names, "photos", REMEDY)

    def positions_of_ids(self, image_ids: Sequence[str]) -> np.ndarray:
        """Return positions ``(len(image_ids),) int64`` in a store of imported features.

        An id that the store does not hold is looked up as the names of photo files are read:
        ``COCO_val2014_000000000042`` is the image ``42``.

        Raises:
            ValueError: images without features, or a store that is keyed by content.
        """
        if self.kind != "imported":
            raise ValueError(
                f"{self.folder}: {self.kind} features are found by photo: use positions"
            )
        positions = find_by_id(self._loaded_index().positions, image_ids)
        remedy = f"{IMPORT_REMEDY} {self.folder}"
        return self._all_there(positions, list(image_ids), "images", remedy)

    def read(self, positions: np.ndarray | Sequence[int]) -> tuple[Tensor, Tensor | None]:
        """Return the features of I photos.

        Args:
            positions: ``(I,)`` from `positions`.

        Returns:
            ``(I, R, D) float16``, R the most regions among these photos, zero where there is none,
            and ``(I, R) bool``, True where a region exists; None if all exist.

        Raises:
            ValueError: a record is damaged.
        """
        features, mask = self._data.features(np.asarray(positions, dtype=np.int64))
        return torch.from_numpy(features), None if mask is None else torch.from_numpy(mask)

    def verify(self) -> None:
        """Read every record against its checksum, also those that were read before.

        Raises:
            ValueError: some are damaged.
        """
        damaged = self._data.damaged()
        if damaged:
            names = ", ".join(self._key_at(position) for position in damaged[:3])
            raise ValueError(
                f"{self.folder}: {len(damaged)} of {len(self)} records differ from the written "
                f"ones (damaged on the disk, or copied in part), such as {names}; copy the folder "
                "again, or delete it and build again"
            )

    def read_boxes(self, positions: np.ndarray | Sequence[int]) -> Tensor:
        """Return boxes ``(I, R, 4) float32`` of I photos, matching the features from `read`.

        x1, y1, x2 and y2 are shares of the photo's sides in [0, 1].

        Raises:
            ValueError: the store has no boxes.
        """
        if not self.has_boxes:
            raise ValueError(f"{self.folder}: these features have no boxes")
        return torch.from_numpy(self._data.boxes(np.asarray(positions, dtype=np.int64)))

    def sizes_of_ids(self, image_ids: Sequence[str]) -> list[tuple[float, float] | None]:
        """Return widths and heights of photos in pixels, as imported with the features.

        None for images that are not there, and where the files do not tell.
        """
        positions = find_by_id(self._loaded_index().positions, image_ids)
        sizes = [self._sizes[p].tolist() if 0 <= p < len(self) else [0, 0] for p in positions]
        return [(width, height) if width and height else None for width, height in sizes]

    def _loaded_index(self) -> FeatureIndex:
        if self._index is None:
            self._index = load_index(self.folder)
        return self._index

    def _key_at(self, position: int) -> str:
        return list(self._loaded_index().positions)[position]

    def _boxes_of(self, name: str, provided: Sequence[Box] | None) -> Sequence[Box] | None:
        if self.kind != "regions":
            return None
        boxes = self._boxes.get(name) if provided is None else provided
        if boxes is None:
            raise ValueError(f"{self.folder}: features of {name} need its boxes: pass boxes=")
        return boxes

    def _all_there(
        self, positions: Sequence[int], names: Sequence[str], kind: str, remedy: str
    ) -> np.ndarray:
        # A process that read the index later than this store was opened may know more records.
        there = np.array([p if p < len(self) else -1 for p in positions], dtype=np.int64)
        missing = [names[number] for number in np.flatnonzero(there < 0).tolist()]
        if missing:
            raise ValueError(
                f"{self.folder}: no features for {len(missing)} of {len(names)} {kind} (never "
                f"built, or the file has changed), such as {', '.join(missing[:3])}; {remedy}"
            )
        return there
