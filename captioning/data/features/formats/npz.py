"""Features in files of numpy: a file for all images, or a folder with a file an image.

In a folder ``ID.npz`` holds what `captioning.data.features.formats.base.record_of` knows: a single
array (``cocobu_att``), ``x`` or ``features`` with ``bbox`` and sizes (bottom-up attention in
PyTorch, MCAN's with turned features), ``norm_bb`` (UNITER); ``ID.npy`` a vector or array
(``cocobu_fc``). A second folder may hold the boxes, ``ID.npy`` (``cocobu_box``).
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from captioning.data.features.formats.base import (
    DAMAGE,
    FEATURES,
    KNOWN,
    AbstractSource,
    Record,
    Wanted,
    first_of,
    numbers,
    record_of,
)

SUFFIXES = (".npz", ".npy")


class ArchiveSource(AbstractSource):
    """One ``.npz``: of one image, or with an array ``(n, D)`` for each of several."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)

    def count(self) -> int:
        """The number of its arrays, or 1."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist()]
        except DAMAGE:
            return 0  # reading it says why
        return 1 if first_of(names, FEATURES) else len(names)

    def records(self, wanted: Wanted) -> Iterator[Record]:
        """Reads array by array."""
        try:
            yield from self._records(wanted)
        except DAMAGE as error:
            raise _named(error, str(self.path), f"{self.path}: not a readable npz file") from error

    def _records(self, wanted: Wanted) -> Iterator[Record]:
        if not zipfile.is_zipfile(self.path):
            raise ValueError(f"{self.path}: not an npz file; was it cut off?")
        with self.path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            names = list(archive.files)
            if first_of(names, FEATURES) or names == ["arr_0"]:
                if wanted(self.path.stem, str(self.path)):
                    yield record_of(self.path.stem, str(self.path), _known(archive, names))
                return
            for name in names:
                where = f"{self.path}, array {name}"
                if wanted(name, where):
                    yield record_of(name, where, {"features": archive[name]})


class FolderSource(AbstractSource):
    """A folder with a file an image.

    Args:
        folder: of the features.
        boxes: a folder with a ``.npy`` of boxes in pixels for each image; None: boxes stand beside
            the features, if at all.
    """

    def __init__(self, folder: Path, *, boxes: Path | None = None) -> None:
        self.folder, self.boxes, self.name = folder, boxes, str(folder)
        self.paths = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)

    def count(self) -> int:
        """The number of its files."""
        return len(self.paths)

    def records(self, wanted: Wanted) -> Iterator[Record]:
        """Reads file by file, in the order of their names."""
        for path in self.paths:
            if wanted(path.stem, str(path)):
                arrays = read_arrays(path)
                if self.boxes is not None:
                    arrays |= {"boxes": self._boxes_of(path.stem)}
                yield record_of(path.stem, str(path), arrays)

    def _boxes_of(self, name: str) -> np.ndarray:
        path = Path(self.boxes or "") / f"{name}.npy"
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no boxes for image {name}; give the whole folder")
        return numbers(read_arrays(path)["features"], str(path))


def read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of one image's ``.npz`` or ``.npy`` by name, a single one as ``features``.

    Raises:
        ValueError: it is damaged, or holds pickled objects alone.
    """
    with path.open("rb") as file:
        return arrays_of(file, str(path))


def arrays_of(file: IO[bytes] | bytes, where: str) -> dict[str, Any]:
    """As `read_arrays`, from an open file or its bytes."""
    opened = io.BytesIO(file) if isinstance(file, bytes) else file
    try:
        content = np.load(opened, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return {"features": content}
        with content as archive:
            return _known(archive, list(archive.files))
    except DAMAGE as error:
        raise _named(error, where, f"{where}: not a readable file of numpy") from error


def _known(archive: Any, names: list[str]) -> dict[str, Any]:
    """The arrays that are looked at; others may be pickled, and are left alone."""
    if len(names) == 1 and names[0] not in KNOWN:
        return {"features": archive[names[0]]}
    return {name: archive[name] for name in names if name in KNOWN}


def _named(error: BaseException, place: str, message: str) -> Exception:
    return ValueError(str(error) if place in str(error) else f"{message} ({error})")
