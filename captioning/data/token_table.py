"""Memory-mapped file with the token ids of many captions, shared by processes and runs."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path

import numpy as np

from captioning.interfaces import AbstractTokenizer
from captioning.runtime.files import write_atomically

FORMAT, HEADER_BYTES = 1, 128
AT_ONCE = 10_000  # captions between two calls of the tokenizer


class TokenTable:
    """Token ids of N captions, concatenated.

    Args:
        ids: ids of all captions, unsigned 16 or 32 bits.
        ends: ``(N,) int64``: where each caption's ids end.
        path: path of the file that they are mapped from, or None.
    """

    def __init__(self, *, ids: np.ndarray, ends: np.ndarray, path: Path | None = None) -> None:
        self.ids, self.ends, self.path = ids, ends, path

    @classmethod
    def encode(cls, captions: Iterable[str], tokenizer: AbstractTokenizer) -> TokenTable:
        """Encode captions with a tokenizer, including begin and end tokens."""
        dtype = id_type(tokenizer)
        captions, parts, counts = iter(captions), [np.zeros(0, dtype)], [np.zeros(0, np.int64)]
        while chunk := list(islice(captions, AT_ONCE)):
            encoded = tokenizer.encode_batch(chunk)
            counts.append(np.fromiter(map(len, encoded), np.int64, len(encoded)))
            total = int(counts[-1].sum())
            parts.append(np.fromiter(chain.from_iterable(encoded), dtype, total))
        return cls(ids=np.concatenate(parts), ends=np.cumsum(np.concatenate(counts)))

    @classmethod
    def open(cls, path: Path, *, number: int) -> TokenTable:
        """Open the table that `save` wrote.

        Raises:
            ValueError: the file is damaged, or has another number of captions.
            OSError: it cannot be read.
        """
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
        try:
            content = json.loads(header)
            num_ids, dtype, check = int(content["ids"]), str(content["dtype"]), content["check"]
            if content["format"] != FORMAT or dtype not in ("<u2", "<u4"):
                raise ValueError(f"format {content['format']!r}, {dtype!r}")
            if content["captions"] != number:
                raise ValueError(f"it has {content['captions']} captions, not {number}")
            size = HEADER_BYTES + 8 * number + np.dtype(dtype).itemsize * num_ids
            if path.stat().st_size != size:
                raise ValueError(f"it has {path.stat().st_size} bytes, not {size}")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error})") from error
        # As plain arrays: slices of a memmap object cost several times as much.
        ends = np.asarray(np.memmap(path, "<i8", "r", HEADER_BYTES, (number,)))
        ids = np.asarray(np.memmap(path, dtype, "r", HEADER_BYTES + 8 * number, (num_ids,)))
        if _check(ids, ends) != check:
            raise ValueError(f"{path} is damaged (its checksum differs)")
        return cls(ids=ids, ends=ends, path=path)

    def save(self, path: Path) -> None:
        """Write the table; it appears in full or not at all.

        Raises:
            OSError: the folder cannot be written, or the disk is full.
        """
        ids, ends = self.ids.astype(self.ids.dtype.newbyteorder("<")), self.ends.astype("<i8")
        content = {
            "format": FORMAT,
            "captions": len(ends),
            "ids": len(ids),
            "dtype": ids.dtype.str,
            "check": _check(ids, ends),
        }
        header = json.dumps(content).encode().ljust(HEADER_BYTES)

        def write(part: Path) -> None:
            with part.open("wb") as file:
                for block in (header, ends.data, ids.data):
                    file.write(block)

        write_atomically(path, write)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: int) -> np.ndarray:
        """Return the token ids ``(T,) int64`` of a caption."""
        start = self.ends[row - 1] if row else 0
        return self.ids[start : self.ends[row]].astype(np.int64)

    def __reduce__(self) -> tuple[object, ...]:
        # A mapped array pickles as a copy of all its data; other processes map the file themselves.
        if self.path is not None:
            return _opened, (self.path, len(self))
        return _rebuilt, (self.ids, self.ends)


def _opened(path: Path, number: int) -> TokenTable:
    return TokenTable.open(path, number=number)


def _rebuilt(ids: np.ndarray, ends: np.ndarray) -> TokenTable:
    return TokenTable(ids=ids, ends=ends)


def _check(ids: np.ndarray, ends: np.ndarray) -> int:
    return zlib.crc32(ids.data, zlib.crc32(ends.data)) if len(ends) else 0


def id_type(tokenizer: AbstractTokenizer) -> type[np.uint16] | type[np.uint32]:
    """Return the data type for a tokenizer's ids."""
    return np.uint16 if len(tokenizer) <= 2**16 else np.uint32
