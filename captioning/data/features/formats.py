"""Read region features from files of other projects, one record per image.

numpy's (`ArchiveSource`, `FolderSource`), HDF5 (`Hdf5Source`), tab-separated (`TsvSource`) and
LMDB (`LmdbSource`).
"""

from __future__ import annotations

import base64
import binascii
import io
import mmap
import struct
import tokenize
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from captioning.runtime.extras import import_extra

MAX_ROWS = 4096
FEATURES, BOXES = ("features", "feat", "x"), ("boxes", "bbox", "box")
SHARES = ("norm_bb", "norm_boxes")
WIDTH, HEIGHT = ("image_w", "img_w", "width", "w"), ("image_h", "img_h", "height", "h")
COUNT = ("num_boxes", "num_bbox")
KNOWN = {*FEATURES, *BOXES, *SHARES, *WIDTH, *HEIGHT, *COUNT}
# What numpy, zipfile and h5py raise over damaged files.
DAMAGE = (
    *(OSError, EOFError, KeyError, ValueError, TypeError, RuntimeError, AttributeError),
    *(zipfile.BadZipFile, zlib.error, SyntaxError, MemoryError, OverflowError, tokenize.TokenError),
)

Wanted = Callable[[str, str], bool]
"""Whether an image's record is to be read, by its id and its place in the source; an image that the
source has twice is an error here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Features of one image as read from a source file.

    Attributes:
        image_id: its name in the source.
        where: its place there, for messages.
        features: ``(n, D)`` numbers.
        boxes: ``(n, 4)``: x1, y1, x2, y2 in pixels, or in shares of the sides; None if unknown.
        are_shares: the boxes are shares.
        size: width and height of the photo in pixels, if known.
    """

    image_id: str
    where: str
    features: np.ndarray
    boxes: np.ndarray | None = None
    are_shares: bool = False
    size: tuple[float, float] | None = None


class AbstractSource(ABC):
    """Base class of files or folders with features.

    Attributes:
        name: name for messages.
    """

    name: str

    @abstractmethod
    def count(self) -> int:
        """Number of images; an estimate if counting would require reading everything."""

    @abstractmethod
    def records(self, wanted: Wanted) -> Iterator[Record]:
        """Yield the records of selected images, in the order of the source.

        Raises:
            ValueError: damaged content; the message names the place.
        """


def record_of(image_id: str, where: str, arrays: Mapping[str, Any]) -> Record:
    """Build a record from the arrays of one image, found by their usual names.

    Features may be one vector (of the whole photo), ``(n, D)``, ``(D, n)`` where ``n`` boxes say
    so, or a grid ``(h, w, D)``, whose cells are the boxes.

    Raises:
        ValueError: no features, or arrays that do not fit each other.
    """
    name = first_of(arrays, FEATURES)
    if name is None:
        raise ValueError(f"{where}: has none of {', '.join(FEATURES)}: got {_listed(arrays)}")
    features = numbers(arrays[name], where)
    if not features.ndim:
        raise ValueError(f"{where}: {name} must be an array of features: got a single number")
    boxes, are_shares = _boxes(arrays, where)
    if boxes is None and features.ndim in (1, 3):
        boxes, are_shares = _cells(features), True
    if features.ndim == 1:
        features = features[None]
    elif features.ndim == 3:
        features = features.reshape(-1, features.shape[-1])
    if boxes is not None and features.ndim == 2 and len(features) != len(boxes):
        features = features.T if features.shape[1] == len(boxes) else features
    features, boxes = _cut(features, boxes, arrays, where)
    width, height = (_number(arrays, names, where) for names in (WIDTH, HEIGHT))
    return Record(
        image_id=image_id,
        where=where,
        features=features,
        boxes=boxes,
        are_shares=are_shares,
        size=None if width is None or height is None else (width, height),
    )


def first_of(names: Collection[str], known: Collection[str]) -> str | None:
    """Return the first known name that occurs in ``names``."""
    return next((name for name in known if name in names), None)


def numbers(array: Any, where: str) -> np.ndarray:
    """Return an array after a check that it holds numbers.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu" or not array.size:
        raise ValueError(f"{where}: must be an array of numbers")
    return array


def _boxes(arrays: Mapping[str, Any], where: str) -> tuple[np.ndarray | None, bool]:
    pixels, shares = first_of(arrays, BOXES), first_of(arrays, SHARES)
    name = shares or pixels
    if name is None:
        return None, False
    boxes = numbers(arrays[name], f"{where}, {name}")
    if boxes.ndim == 1 and boxes.size % 4 == 0:
        boxes = boxes.reshape(-1, 4)
    # Shares may be followed by the box's width, height and area.
    if boxes.ndim != 2 or boxes.shape[1] < 4 or (shares is None and boxes.shape[1] != 4):
        raise ValueError(f"{where}: {name} must be (n, 4): got {boxes.shape}")
    return boxes[:, :4], shares is not None


def _cells(features: np.ndarray) -> np.ndarray:
    """Return boxes ``(n, 4)`` as fractions: the whole photo, or the cells of a grid by row."""
    height, width = (1, 1) if features.ndim == 1 else features.shape[:2]
    y, x = (axis.ravel() for axis in np.mgrid[:height, :width])
    return np.stack([x / width, y / height, (x + 1) / width, (y + 1) / height], axis=1)


def _cut(
    features: np.ndarray, boxes: np.ndarray | None, arrays: Mapping[str, Any], where: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """Remove padded rows, and check that features and boxes have equal numbers."""
    count = _number(arrays, COUNT, where)
    if count is not None:
        if not 1 <= count <= len(features) or count != int(count):
            raise ValueError(f"{where}: num_boxes is {count:g}, features are {features.shape}")
        features = features[: int(count)]
        boxes = None if boxes is None else boxes[: int(count)]
    if boxes is not None and len(boxes) != len(features):
        raise ValueError(f"{where}: {len(features)} features and {len(boxes)} boxes")
    return features, boxes


def _number(arrays: Mapping[str, Any], names: Collection[str], where: str) -> float | None:
    name = first_of(arrays, names)
    if name is None:
        return None
    value = np.asarray(arrays[name])
    if value.size != 1 or value.dtype.kind not in "fiu":
        raise ValueError(f"{where}: {name} must be a number")
    return float(value.ravel()[0])


def _listed(arrays: Collection[str]) -> str:
    return ", ".join(map(str, list(arrays)[:6])) or "nothing"


NUMPY_SUFFIXES = (".npz", ".npy")


class ArchiveSource(AbstractSource):
    """Source: an ``.npz`` file of one image, or with an array ``(n, D)`` per image."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)

    def count(self) -> int:
        """Number of arrays, or 1."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist()]
        except DAMAGE:
            return 0  # reading it says why
        return 1 if first_of(names, FEATURES) else len(names)

    def records(self, wanted: Wanted) -> Iterator[Record]:
        """Yield the records array by array."""
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
                    yield record_of(self.path.stem, str(self.path), _known_arrays(archive, names))
                return
            for name in names:
                where = f"{self.path}, array {name}"
                if wanted(name, where):
                    yield record_of(name, where, {"features": archive[name]})


class FolderSource(AbstractSource):
    """Source: a folder of numpy files, one per image.

    ``ID.npz`` holds arrays that `record_of` reads: a single array (``cocobu_att``), ``x`` or
    ``features`` with ``bbox`` and sizes (bottom-up attention in PyTorch, MCAN's with turned
    features), ``norm_bb`` (UNITER). ``ID.npy`` is a vector or array (``cocobu_fc``). A second
    folder may hold the boxes, ``ID.npy`` (``cocobu_box``).

    Args:
        folder: folder of the features.
        boxes: a folder with a ``.npy`` of boxes in pixels for each image; None: boxes stand beside
            the features, if at all.
    """

    def __init__(self, folder: Path, *, boxes: Path | None = None) -> None:
        self.folder, self.boxes, self.name = folder, boxes, str(folder)
        self.paths = sorted(path for path in folder.iterdir() if path.suffix in NUMPY_SUFFIXES)

    def count(self) -> int:
        """Number of files."""
        return len(self.paths)

    def records(self, wanted: Wanted) -> Iterator[Record]:
        """Yield the records file by file, sorted by name."""
        for path in self.paths:
            if wanted(path.stem, str(path)):
                arrays = read_arrays(path)
                if self.boxes is not None:
                    arrays |= {"boxes": self._boxes_of(path.stem)}
                yield record_of(path.stem, str(path), arrays)

    def _boxes_of(self, name: str) -> np.ndarray:
        path = Path(self.boxes or "") / f"{name}.npy"
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no boxes for image {name}; copy all box files there")
        return numbers(read_arrays(path)["features"], str(path))


def read_arrays(path: Path) -> dict[str, Any]:
    """Read the arrays of an ``.npz`` file by name, or of an ``.npy`` file as ``features``.

    Raises:
        ValueError: it is damaged, or holds pickled objects alone.
    """
    with path.open("rb") as file:
        return arrays_of(file, str(path))


def arrays_of(file: IO[bytes] | bytes, where: str) -> dict[str, Any]:
    """Read arrays from an open file or its bytes, see `read_arrays`."""
    opened = io.BytesIO(file) if isinstance(file, bytes) else file
    try:
        content = np.load(opened, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return {"features": content}
        with content as archive:
            return _known_arrays(archive, list(archive.files))
    except DAMAGE as error:
        raise _named(error, where, f"{where}: not a readable file of numpy") from error


def _known_arrays(archive: Any, names: list[str]) -> dict[str, Any]:
    """Return the arrays that the import uses; others may be pickled, and are not read."""
    if len(names) == 1 and names[0] not in KNOWN:
        return {"features": archive[names[0]]}
    return {name: archive[name] for name in names if name in KNOWN}


def _named(error: BaseException, place: str, message: str) -> Exception:
    return ValueError(str(error) if place in str(error) else f"{message} ({error})")


IDS = ("image_id", "image_ids")
HDF5_SUFFIXES = (".h5", ".hdf5")


class Hdf5Source(AbstractSource):
    """Source: an HDF5 file with a group or dataset per image, or tables with a row per image.

    - ``{img_id}/features`` with ``boxes``, ``img_w``, ``img_h`` (VL-T5, VL-BART, CIC-BART);
    - ``{img_id}`` as a data set ``(n, D)``;
    - ``image_id`` with ``features``, and where there are any ``boxes``, ``num_boxes``, ``width``
      and ``height``: ``(N, R, D)``, or rows of any length, flattened (updown-baseline).
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)

    def count(self) -> int:
        """Number of rows of the table, or of groups."""
        try:
            with self._opened() as file:
                ids = first_of(file, IDS)
                return len(file) if ids is None else len(file[ids])
        except DAMAGE:
            return 0  # reading it says why

    def records(self, wanted: Wanted) -> Iterator[Record]:
        """Yield the records image by image."""
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
    """Reshape a flattened vector of rows, using the number of boxes."""
    features = numbers(arrays["features"], where)
    if features.ndim != 1:
        return arrays
    boxes, count = first_of(arrays, BOXES), first_of(arrays, COUNT)
    number = int(arrays[count]) if count else arrays[boxes].size // 4 if boxes else 1
    if number < 1 or features.size % number:
        raise ValueError(
            f"{where}: {features.size} values do not divide into rows of {number} boxes"
        )
    return {**arrays, "features": features.reshape(number, -1)}


COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")


class TsvSource(AbstractSource):
    """Source: a TSV file of bottom-up attention features, or one part (``.tsv.0``) of it.

    Boxes and features are base64 of float32 (peteanderson80/bottom-up-attention).
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)

    def count(self) -> int:
        """Number of images, estimated from the length of the first line."""
        with self.path.open("rb") as file:
            first = len(file.readline())
        return round(self.path.stat().st_size / first) if first else 0

    def records(self, wanted: Wanted) -> Iterator[Record]:
        """Yield the records line by line; unselected lines are not decoded."""
        with self.path.open("rb", buffering=2**20) as file:  # a line may be a megabyte
            for number, line in enumerate(file, start=1):
                where = f"{self.path}, line {number}"
                image_id = _tsv_text(line[: max(line.find(b"\t"), 0)], where)
                if wanted(image_id, where):
                    yield _tsv_record(image_id, line, where)


def _tsv_record(image_id: str, line: bytes, where: str) -> Record:
    cells = line.rstrip(b"\r\n").split(b"\t")
    if len(cells) != len(COLUMNS):
        raise ValueError(
            f"{where}: must hold {', '.join(COLUMNS)} between tabs: got {len(cells)} columns; was "
            "the file cut off?"
        )
    _, width, height, count, boxes, features = cells
    if not count.isdigit() or not 1 <= int(count) <= MAX_ROWS:
        raise ValueError(f"{where}: num_boxes must be 1 to {MAX_ROWS}: got {count[:20]!r}")
    return Record(
        image_id=image_id,
        where=where,
        boxes=_tsv_floats(boxes, int(count), "boxes", where, width=4),
        features=_tsv_floats(features, int(count), "features", where),
        size=(_pixels(width, "image_w", where), _pixels(height, "image_h", where)),
    )


def _tsv_text(cell: bytes, where: str) -> str:
    try:
        text = cell.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: image_id is not UTF-8 text") from error
    if not text:
        raise ValueError(f"{where}: image_id is empty")
    return text


def _pixels(cell: bytes, column: str, where: str) -> float:
    if not cell.isdigit() or not 1 <= int(cell) < 10**6:
        raise ValueError(f"{where}: {column} must be a number of pixels: got {cell[:20]!r}")
    return float(cell)


def _tsv_floats(
    cell: bytes, rows: int, column: str, where: str, width: int | None = None
) -> np.ndarray:
    """Decode base64 of float32 to ``(rows, width)``."""
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


# Reads the file of an LMDB (version 0.9), every offset checked.
#
# The library itself trusts the file: a damaged one ends the process without a word. Of its format
# (``mdb.c``) this reads what a data base of entries needs: meta pages, branches, leaves, and pages
# of large values. It is searched in order from the root.
_LMDB_MAGIC, _VERSION = 0xBEEFC0DE, 1
_HEADER = 16  # bytes of a page before its content
_BRANCH, _LEAF, _OVERFLOW = 0x01, 0x02, 0x04
_BIG_VALUE = 0x01
_NO_PAGE = 2**64 - 1
_MAX_DEPTH = 32
_META = struct.Struct("<IIQQ")  # magic, version, address, size of the map
_TREE = struct.Struct("<IHHQQQQQ")  # page size or pad, flags, depth, three counts, entries, root
_END = struct.Struct("<QQ")  # last page, transaction
_NODE = struct.Struct("<HHHH")  # low and high half of size or page, flags, size of the key


@dataclass(frozen=True, slots=True)
class _Meta:
    page_size: int
    entries: int
    root: int
    last_page: int
    transaction: int


@contextmanager
def open_lmdb(path: Path) -> Iterator[LmdbFile]:
    """Open the file of an LMDB database, memory-mapped.

    Raises:
        ValueError: it is none, or was cut off.
    """
    with path.open("rb") as file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise ValueError(f"{path}: is an empty file") from error
        with mapped:
            yield LmdbFile(mapped, path)


class LmdbFile:
    """A memory-mapped LMDB file.

    Attributes:
        num_entries: number of entries by its header.
    """

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data, self.path = data, path
        first = self._meta(0)
        metas = [first] if first else []
        # The first page may be the damaged one of the two, so its size may be any that is usual.
        sizes = [first.page_size] if first else [2**power for power in range(9, 17)]
        metas += [meta for size in sizes if (meta := self._meta(size))]
        if not metas:
            raise ValueError(f"{path}: is not an LMDB of version 0.9")
        self._newest = max(metas, key=lambda meta: meta.transaction)
        self.num_entries = self._newest.entries
        expected = (self._newest.last_page + 1) * self._newest.page_size
        if len(data) < expected:
            raise ValueError(f"{path} has {len(data)} bytes of {expected}; was it cut off?")

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in the order of keys.

        Raises:
            ValueError: a damaged page, which the message names.
        """
        if self._newest.root == _NO_PAGE:
            return
        visited: set[int] = set()
        ahead = [(self._newest.root, 0)]
        while ahead:
            page, depth = ahead.pop()
            if page in visited or depth > _MAX_DEPTH:
                raise self._damaged(page)
            visited.add(page)
            nodes = self._nodes(page)
            if self._flags(page) & _LEAF:
                for node in nodes:
                    yield self._entry(page, node)
            else:
                ahead += [(self._child(node), depth + 1) for node in reversed(nodes)]

    def _meta(self, start: int) -> _Meta | None:
        place = start + _HEADER
        if place + _META.size + 2 * _TREE.size + _END.size > len(self._data):
            return None
        magic, version, _, _ = _META.unpack_from(self._data, place)
        if (magic, version) != (_LMDB_MAGIC, _VERSION):
            return None
        place += _META.size
        page_size = _TREE.unpack_from(self._data, place)[0]
        *_, entries, root = _TREE.unpack_from(self._data, place + _TREE.size)
        last_page, transaction = _END.unpack_from(self._data, place + 2 * _TREE.size)
        if page_size not in [2**power for power in range(9, 17)]:
            return None
        return _Meta(page_size, entries, root, last_page, transaction)

    def _place(self, page: int) -> int:
        """Return the offset of a page."""
        place = page * self._newest.page_size
        if not 2 <= page <= self._newest.last_page or place + _HEADER > len(self._data):
            raise self._damaged(page)
        return place

    def _flags(self, page: int) -> int:
        return struct.unpack_from("<H", self._data, self._place(page) + 10)[0]

    def _nodes(self, page: int) -> list[int]:
        """Return the offsets of the nodes of a branch or leaf."""
        place, size = self._place(page), self._newest.page_size
        flags, lower = struct.unpack_from("<HH", self._data, place + 10)
        if flags & ~0x10 not in (_BRANCH, _LEAF) or not _HEADER <= lower <= size:
            raise self._damaged(page)
        offsets = struct.unpack_from(f"<{(lower - _HEADER) // 2}H", self._data, place + _HEADER)
        if any(not lower <= offset <= size - _NODE.size for offset in offsets):
            raise self._damaged(page)
        return [place + offset for offset in offsets]

    def _child(self, node: int) -> int:
        low, high, highest, _ = _NODE.unpack_from(self._data, node)
        return low | high << 16 | highest << 32

    def _entry(self, page: int, node: int) -> tuple[bytes, bytes]:
        low, high, flags, key_size = _NODE.unpack_from(self._data, node)
        end = self._place(page) + self._newest.page_size
        key, size = node + _NODE.size, low | high << 16
        value = key + key_size
        if flags == _BIG_VALUE and value + 8 <= end:
            large = struct.unpack_from("<Q", self._data, value)[0]
            value, end = self._place(large) + _HEADER, len(self._data)
            flags = 0 if self._flags(large) & _OVERFLOW else _BIG_VALUE
        if flags or key + key_size > len(self._data) or value + size > end:
            raise self._damaged(page)
        return self._data[key : key + key_size], self._data[value : value + size]

    def _damaged(self, page: int) -> ValueError:
        return ValueError(f"{self.path}: page {page} is damaged, or not of a plain LMDB database")


LMDB_FILE = "data.mdb"
_NOT_IMAGES = {b"__keys__", b"keys", b"__len__"}
_PICKLE = (
    "is a pickle, which runs what its maker wrote, so it is not read; write the features as .npz "
    "files (numpy.savez(ID, features=..., boxes=...)) where you trust their maker, and import the "
    "folder of these"
)


class LmdbSource(AbstractSource):
    """Source: an LMDB database (folder or file) with an entry per image, keyed by its name.

    Values are arrays by name, as msgpack with numpy's arrays (UNITER, VILLA) or as ``.npz``
    (UNITER's compressed ones), with names as in `record_of`. Pickled values (ViLBERT) are refused:
    reading a pickle runs its maker's code.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)

    def count(self) -> int:
        """Number of entries."""
        try:
            with open_lmdb(self._file) as entries:
                return entries.num_entries
        except ValueError:
            return 0  # reading it says why

    def records(self, wanted: Wanted) -> Iterator[Record]:
        """Yield the records entry by entry, in the order of keys."""
        with open_lmdb(self._file) as file:
            for key, value in file.entries():
                yield from self._entry(key, value, wanted)

    @property
    def _file(self) -> Path:
        return self.path / LMDB_FILE if self.path.is_dir() else self.path

    def _entry(self, key: bytes, value: bytes, wanted: Wanted) -> Iterator[Record]:
        if key in _NOT_IMAGES:
            return
        where = f"{self.path}, key {key[:80]!r}"
        try:
            image_id = key.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{where}: is not UTF-8 text") from error
        if wanted(image_id, where):
            yield record_of(image_id, where, _arrays(value, where))


def _arrays(value: bytes, where: str) -> dict[str, Any]:
    if value[:1] == b"\x80":  # protocol 2 and later; in msgpack an empty mapping
        raise ValueError(f"{where}: {_PICKLE}")
    if value[:2] == b"PK" or value[:6] == b"\x93NUMPY":
        return arrays_of(value, where)
    msgpack = import_extra("msgpack", extra="features", purpose="reading LMDB")
    try:
        content = msgpack.unpackb(value, raw=True, strict_map_key=False)
        names = {_as_text(name): name for name in content}
        return {name: _array(content[names[name]]) for name in names if name in KNOWN}
    except (*DAMAGE, msgpack.UnpackException, RecursionError) as error:
        raise ValueError(
            f"{where}: is neither npz nor msgpack of numpy's arrays ({error}); write the features "
            "as .npz files and import the folder of these"
        ) from error


def _as_text(name: object) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def _array(value: Any) -> Any:
    """Decode an array or number in msgpack-numpy's format, without running code."""
    if not isinstance(value, dict):
        return np.asarray(value)
    fields = {_as_text(name): item for name, item in value.items()}
    kind = np.dtype(_as_text(fields["type"]))
    if kind.kind not in "fiu":
        raise ValueError(f"array of type {kind}")
    array = np.frombuffer(fields["data"], dtype=kind)
    is_array = fields["nd"]  # codespell:ignore nd
    return array.reshape([int(side) for side in fields["shape"]]) if is_array else array
