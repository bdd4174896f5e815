"""Import of precomputed region features (bottom-up attention and the like) into a feature store.

``captioning import-features FILE... --folder FOLDER`` reads

- ``.tsv``: image_id, image_w, image_h, num_boxes, boxes, features; the last two are base64 of
  float32 (peteanderson80/bottom-up-attention), with a fixed 36 or 10 to 100 boxes an image;
- ``.npz``: one ``(n, D)`` array per image id, or a file per image (its name is the image id) that
  holds a single array, or one called ``feat``, ``features`` or ``x``;
- ``.h5``: one ``(n, D)`` data set per image id, or ``image_id`` with ``features`` ``(N, R, D)`` or
  ``(N, R*D)``, rows of any length allowed, and ``num_boxes``.
"""

from __future__ import annotations

import base64
import binascii
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from captioning.data.features.store import (
    INDEX_NAME,
    LOCK_NAME,
    FeatureIndex,
    FeatureStore,
    FeatureWriter,
    load_index,
)
from captioning.data.file_lock import locked
from captioning.extras import import_extra

TSV_COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
MAX_BOXES = 1000
# What numpy, zipfile and h5py raise over damaged files.
_DAMAGE = (
    *(OSError, EOFError, KeyError, ValueError, TypeError, RuntimeError, AttributeError),
    *(zipfile.BadZipFile, zlib.error, SyntaxError, MemoryError, OverflowError, tokenize.TokenError),
)
Record = tuple[str, np.ndarray, str]  # image id, (n, D) float32, where it stands in the source


def import_features(
    sources: Sequence[str | Path],
    *,
    folder: str | Path,
    name: str = "bottom_up",
    image_ids: Collection[str] | None = None,
    dim: int | None = None,
    chunk_size: int = 1000,
) -> FeatureStore:
    """Copy the features of all ``sources`` into one store as ``float16``, by image id.

    An import that was killed goes on where it stopped.

    Args:
        sources: files, see the module.
        folder: of the store.
        name: of the features; written into the store.
        image_ids: images that must be there at the end; others are left out. None takes all.
        dim: feature size that is expected; None for that of the first image.
        chunk_size: images between two commits.

    Raises:
        FileNotFoundError: a source does not exist.
        ValueError: damaged, repeated, non-finite or missing features, or of another size.
    """
    target, required_ids = Path(folder), None if image_ids is None else set(image_ids)
    for source in map(Path, sources):
        if not source.is_file():
            raise FileNotFoundError(f"{source}: no such file; name the features to import")
    target.mkdir(parents=True, exist_ok=True)
    with locked(target / LOCK_NAME, subject=str(target), notify=Console().print):
        records = _checked(_all_records(sources), dim)
        first_record = next(records, None)
        if first_record is None:
            raise ValueError(f"{', '.join(map(str, sources))}: no features in there")
        index = _index(target, name, first_record[1].shape[1])
        with FeatureWriter(folder=target, index=index) as writer:
            _copy(first_record, records, writer, required_ids, chunk_size)
        _require(index, required_ids, target)
    return FeatureStore.open(target)


def read_records(source: Path) -> Iterator[Record]:
    """Image ids with their ``(n, D)`` features, in the file's order.

    Raises:
        ValueError: an unknown ending, or a damaged file.
    """
    readers = {".tsv": _read_tsv, ".npz": _read_npz, ".h5": _read_h5, ".hdf5": _read_h5}
    if source.suffix not in readers:
        raise ValueError(f"{source}: features must be one of {sorted(readers)} files")
    yield from readers[source.suffix](source)


def _all_records(sources: Sequence[str | Path]) -> Iterator[Record]:
    for source in sources:
        yield from read_records(Path(source))


def _checked(records: Iterator[Record], dim: int | None) -> Iterator[Record]:
    known_ids: set[str] = set()
    for image_id, features, where in records:
        if features.ndim != 2 or not 1 <= len(features) <= MAX_BOXES:
            raise ValueError(
                f"{where}: features must be (n, D) with 1 <= n <= {MAX_BOXES}: got {features.shape}"
            )
        dim = dim or features.shape[1]
        if features.shape[1] != dim:
            raise ValueError(f"{where}: features must have {dim} values: got {features.shape[1]}")
        if image_id in known_ids:
            raise ValueError(f"{where}: image {image_id} occurs twice; remove one of the two")
        with np.errstate(over="ignore"):
            halves = features.astype(np.float16)
        if not np.isfinite(halves).all():
            raise ValueError(f"{where}: features are NaN or too large for float16 (65504)")
        known_ids.add(image_id)
        yield image_id, halves, where


def _index(target: Path, name: str, dim: int) -> FeatureIndex:
    fresh = FeatureIndex(identity=name, kind="imported", image_size=0, dim=dim)
    if not (target / INDEX_NAME).exists():
        return fresh
    index = load_index(target)
    if (index.identity, index.kind, index.dim) != (name, "imported", dim):
        raise ValueError(
            f"{target}: holds {index.kind} features {index.identity!r} of size {index.dim}, not "
            f"{name!r} of size {dim}; choose another folder"
        )
    return index


def _copy(
    first_record: Record,
    records: Iterator[Record],
    writer: FeatureWriter,
    required_ids: set[str] | None,
    chunk_size: int,
) -> None:
    def everything() -> Iterator[Record]:
        yield first_record
        yield from records

    for number, (image_id, features, _) in enumerate(track(everything(), "importing"), start=1):
        is_excluded = required_ids is not None and image_id not in required_ids
        if not is_excluded and image_id not in writer.index.records:
            writer.append(image_id, features)
        if number % chunk_size == 0:
            writer.commit()
    writer.commit()


def _require(index: FeatureIndex, required_ids: set[str] | None, target: Path) -> None:
    missing = sorted((required_ids or set()) - index.records.keys())
    if missing:
        raise ValueError(
            f"{target}: {len(missing)} images have no features in the files given, such as "
            f"{', '.join(missing[:3])}; add the file that holds them"
        )


def _read_tsv(source: Path) -> Iterator[Record]:
    with source.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{source}, line {number}"
            cells = line.rstrip(b"\r\n").split(b"\t")
            if len(cells) != len(TSV_COLUMNS):
                raise ValueError(
                    f"{where}: must hold {', '.join(TSV_COLUMNS)} between tabs: got {len(cells)} "
                    "columns; was the file cut off?"
                )
            image_id, _, _, count, boxes, features = cells
            if not count.isdigit() or not 1 <= int(count) <= MAX_BOXES:
                raise ValueError(f"{where}: num_boxes must be 1 to {MAX_BOXES}: got {count[:20]!r}")
            _floats(boxes, int(count), "boxes", where, width=4)
            yield _text(image_id, where), _floats(features, int(count), "features", where), where


def _text(cell: bytes, where: str) -> str:
    try:
        text = cell.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: image_id is not UTF-8 text") from error
    if not text:
        raise ValueError(f"{where}: image_id is empty")
    return text


def _floats(
    cell: bytes, rows: int, column: str, where: str, width: int | None = None
) -> np.ndarray:
    """Base64 of float32 as ``(rows, width)``."""
    try:
        data = base64.b64decode(cell, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{where}: {column} is not base64 ({error}); was it cut off?") from error
    if not data or len(data) % (4 * rows) or (width and len(data) != 4 * rows * width):
        raise ValueError(
            f"{where}: {column} holds {len(data)} bytes, which is no float32 for {rows} boxes; "
            "was the line cut off?"
        )
    return np.frombuffer(data, dtype="<f4").reshape(rows, -1)


def _read_npz(source: Path) -> Iterator[Record]:
    if not zipfile.is_zipfile(source):
        raise ValueError(f"{source}: not an npz file; was it cut off?")
    try:
        with source.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            names = list(archive.files)
            single = [key for key in ("feat", "features", "x") if key in names]
            if single or (len(names) == 1 and names[0] == "arr_0"):
                yield source.stem, _numbers(archive[(single or names)[0]], str(source)), str(source)
                return
            for name in names:
                where = f"{source}, array {name}"
                yield name, _numbers(archive[name], where), where
    except _DAMAGE as error:
        if str(source) in str(error):
            raise
        raise ValueError(f"{source}: not a readable npz file ({error})") from error


def _numbers(array: Any, where: str) -> np.ndarray:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":
        raise ValueError(f"{where}: must be an array of numbers")
    return array.astype(np.float32)


def _read_h5(source: Path) -> Iterator[Record]:
    h5py = import_extra("h5py", extra="features", purpose="reading .h5")
    try:
        with h5py.File(source, "r") as file:
            ids = next((key for key in ("image_id", "image_ids") if key in file), None)
            yield from _h5_table(file, ids, source) if ids else _h5_by_name(file, source)
    except _DAMAGE as error:
        if str(source) in str(error):
            raise
        raise ValueError(f"{source}: not a readable h5 file of features ({error})") from error


def _h5_by_name(file: Any, source: Path) -> Iterator[Record]:
    for name in file:
        where = f"{source}, data set {name}"
        yield name, _numbers(file[name][()], where), where


def _h5_table(file: Any, ids: str, source: Path) -> Iterator[Record]:
    features, counts = file["features"], file.get("num_boxes", None)
    if len(features) != len(file[ids]) or (counts is not None and len(counts) != len(features)):
        raise ValueError(f"{source}: {ids}, features and num_boxes must have the same length")
    for row, image_id in enumerate(file[ids][()]):
        name = image_id.decode() if isinstance(image_id, bytes) else str(image_id)
        where = f"{source}, row {row} (image {name})"
        values = _numbers(np.asarray(features[row]), where)
        count = len(values) if counts is None else int(counts[row])
        if values.ndim == 1:
            if counts is None or count < 1 or values.size % count:
                raise ValueError(f"{where}: {values.size} values are no rows of {count} boxes")
            values = values.reshape(count, -1)
        if not 1 <= count <= len(values):
            raise ValueError(f"{where}: num_boxes is {count}, rows are {len(values)}")
        yield name, values[:count], where
