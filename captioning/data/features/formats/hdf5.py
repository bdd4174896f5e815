"""Features in HDF5: a group or data set an image, or tables with a row an image.

- ``{img_id}/features`` with ``boxes``, ``img_w``, ``img_h`` (VL-T5, VL-BART, CIC-BART);
- ``{img_id}`` as a data set ``(n, D)``;
- ``image_id`` with ``features``, and where there are any ``boxes``, ``num_boxes``, ``width`` and
  ``height``: ``(N, R, D)``, or rows of any length, flattened (updown-baseline).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from captioning.data.features.formats.base import (
    BOXES,
    COUNT,
    DAMAGE,
    HEIGHT,
    KNOWN,
    WIDTH,
    AbstractSource,
    Record,
    Wanted,
    first_of,
    numbers,
    record_of,
)
from captioning.runtime.extras import import_extra

IDS = ("image_id", "image_ids")
SUFFIXES = (".h5", ".hdf5")


class Hdf5Source(AbstractSource):
    """One file."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)

    def count(self) -> int:
        """The rows of its table, or its groups."""
        try:
            with self._opened() as file:
                ids = first_of(file, IDS)
                return len(file) if ids is None else len(file[ids])
        except DAMAGE:
            return 0  # reading it says why

    def records(self, wanted: Wanted) -> Iterator[Record]:
        """Reads image by image."""
        try:
            with self._opened() as file:
                ids = first_of(file, IDS)
                if ids is None:
                    yield from self._by_name(file, wanted)
                else:
                    yield from _table(file, ids, self.path, wanted)
        except DAMAGE as error:
            place = str(self.path)
            message = f"{place}: not a readable h5 file of features ({error})"
            raise ValueError(str(error) if place in str(error) else message) from error

    def _opened(self) -> Any:
        h5py = import_extra("h5py", extra="features", purpose="reading .h5")
        return h5py.File(self.path, "r")

    def _by_name(self, file: Any, wanted: Wanted) -> Iterator[Record]:
        for name in file:
            where = f"{self.path}, image {name}"
            if not wanted(name, where):
                continue
            item = file[name]
            if hasattr(item, "keys"):
                arrays = {key: np.asarray(item[key][()]) for key in item if key in KNOWN}
            else:
                arrays = {"features": np.asarray(item[()])}
            yield record_of(name, where, arrays)


def _table(file: Any, ids: str, source: Path, wanted: Wanted) -> Iterator[Record]:
    names = [first_of(file, known) for known in (COUNT, WIDTH, HEIGHT, BOXES)]
    columns = {name: file[name] for name in ("features", *names) if name is not None}
    lengths = {name: len(column) for name, column in columns.items()}
    if set(lengths.values()) != {len(file[ids])}:
        raise ValueError(f"{source}: {ids} and {lengths} must have the same length")
    for row, raw_id in enumerate(file[ids][()]):
        image_id = raw_id.decode() if isinstance(raw_id, bytes) else str(raw_id)
        where = f"{source}, row {row} (image {image_id})"
        if wanted(image_id, where):
            arrays = {name: np.asarray(column[row]) for name, column in columns.items()}
            yield record_of(image_id, where, _unflattened(arrays, where))


def _unflattened(arrays: dict[str, np.ndarray], where: str) -> dict[str, np.ndarray]:
    """Rows of any length are stored as one vector: the number of boxes says how many they are."""
    features = numbers(arrays["features"], where)
    if features.ndim != 1:
        return arrays
    boxes, count = first_of(arrays, BOXES), first_of(arrays, COUNT)
    number = int(arrays[count]) if count else arrays[boxes].size // 4 if boxes else 1
    if number < 1 or features.size % number:
        raise ValueError(f"{where}: {features.size} values are no rows of {number} boxes")
    return {**arrays, "features": features.reshape(number, -1)}
