"""Features in LMDB: an entry an image, its name the key.

Values are arrays by name, as msgpack with numpy's arrays (UNITER, VILLA) or as ``.npz`` (UNITER's
compressed ones), with names as in `captioning.data.features.formats.base.record_of`. Pickled values
(ViLBERT) are refused: to read a pickle is to run what its maker wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from captioning.data.features.formats.lmdb_file import open_lmdb
from captioning.data.features.formats.npz import arrays_of
from captioning.runtime.extras import import_extra

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
