"""Features in LMDB: an entry an image, its name the key.

Values are arrays by name, as msgpack with numpy's arrays (UNITER, VILLA) or as ``.npz`` (UNITER's
compressed ones), with names as in `captioning.data.features.formats.base.record_of`. Pickled values
(ViLBERT) are refused: to read a pickle is to run what its maker wrote.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from captioning.data.features.formats.base import (
    DAMAGE,
    KNOWN,
    AbstractSource,
    Record,
    Wanted,
    record_of,
)
from captioning.data.features.formats.npz import arrays_of
from captioning.runtime.extras import import_extra

# Reads the file of an LMDB (version 0.9), every offset checked.
#
# The library itself trusts the file: a damaged one ends the process without a word. Of its format
# (``mdb.c``) this reads what a data base of entries needs: meta pages, branches, leaves, and pages
# of large values. It is searched in order from the root.
_MAGIC, _VERSION = 0xBEEFC0DE, 1
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
    """The file of a data base, mapped into memory.

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
    """A mapped file.

    Attributes:
        num_entries: that its header says it holds.
    """

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data, self.path = data, path
        first = self._meta(0)
        metas = [first] if first else []
        # The first page may be the damaged one of the two, so its size may be any that is usual.
        sizes = [first.page_size] if first else [2**power for power in range(9, 17)]
        metas += [meta for size in sizes if (meta := self._meta(size))]
        if not metas:
            raise ValueError(f"{path}: is no LMDB of version 0.9")
        self._newest = max(metas, key=lambda meta: meta.transaction)
        self.num_entries = self._newest.entries
        expected = (self._newest.last_page + 1) * self._newest.page_size
        if len(data) < expected:
            raise ValueError(f"{path}: holds {len(data)} bytes of {expected}; was it cut off?")

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values, in the order of keys.

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
        if (magic, version) != (_MAGIC, _VERSION):
            return None
        place += _META.size
        page_size = _TREE.unpack_from(self._data, place)[0]
        *_, entries, root = _TREE.unpack_from(self._data, place + _TREE.size)
        last_page, transaction = _END.unpack_from(self._data, place + 2 * _TREE.size)
        if page_size not in [2**power for power in range(9, 17)]:
            return None
        return _Meta(page_size, entries, root, last_page, transaction)

    def _place(self, page: int) -> int:
        """Where a page begins."""
        place = page * self._newest.page_size
        if not 2 <= page <= self._newest.last_page or place + _HEADER > len(self._data):
            raise self._damaged(page)
        return place

    def _flags(self, page: int) -> int:
        return struct.unpack_from("<H", self._data, self._place(page) + 10)[0]

    def _nodes(self, page: int) -> list[int]:
        """Where the nodes of a branch or leaf begin."""
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
        return ValueError(f"{self.path}: page {page} is damaged, or not of a plain data base")


DATA_FILE = "data.mdb"
_NOT_IMAGES = {b"__keys__", b"keys", b"__len__"}
_PICKLE = (
    "is a pickle, which runs what its maker wrote, so it is not read; write the features as .npz "
    "files (numpy.savez(ID, features=..., boxes=...)) where you trust their maker, and import the "
    "folder of these"
)


class LmdbSource(AbstractSource):
    """A data base: its folder, or its file."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)

    def count(self) -> int:
        """The number of its entries."""
        try:
            with open_lmdb(self._file) as entries:
                return entries.num_entries
        except ValueError:
            return 0  # reading it says why

    def records(self, wanted: Wanted) -> Iterator[Record]:
        """Reads entry by entry, in the order of keys."""
        with open_lmdb(self._file) as file:
            for key, value in file.entries():
                yield from self._entry(key, value, wanted)

    @property
    def _file(self) -> Path:
        return self.path / DATA_FILE if self.path.is_dir() else self.path

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
        names = {_text(name): name for name in content}
        return {name: _array(content[names[name]]) for name in names if name in KNOWN}
    except (*DAMAGE, msgpack.UnpackException, RecursionError) as error:
        raise ValueError(
            f"{where}: is neither npz nor msgpack of numpy's arrays ({error}); write the features "
            "as .npz files and import the folder of these"
        ) from error


def _text(name: object) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def _array(value: Any) -> Any:
    """An array or number as msgpack-numpy writes it; nothing in it is run."""
    if not isinstance(value, dict):
        return np.asarray(value)
    fields = {_text(name): item for name, item in value.items()}
    kind = np.dtype(_text(fields["type"]))
    if kind.kind not in "fiu":
        raise ValueError(f"array of type {kind}")
    array = np.frombuffer(fields["data"], dtype=kind)
    is_array = fields["nd"]  # codespell:ignore nd
    return array.reshape([int(side) for side in fields["shape"]]) if is_array else array
