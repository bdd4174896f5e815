"""Read the headers of a tar file's members without extracting any member.

Python's ``tarfile`` mistakes a damaged header for the end of the file, and before 3.11.10 malicious
headers could make it search for hours; both matter for untrusted files. Shards of photos
need few features: plain files, possibly with long names (GNU and POSIX headers).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

BLOCK = 512
_ZEROS = bytes(BLOCK)
_MAX_HEADER = 1024**2  # bytes of a long name, or of POSIX's records
_LOOKED_AT = 1024**2  # bytes after the end that must be zero
_OCTAL = re.compile(rb"[ \0]*([0-7]*)[ \0]*")
FILE, FOLDER, OTHER = "file", "folder", "link or device"
_KINDS = {b"0": FILE, b"\0": FILE, b"7": FILE, b"5": FOLDER}
_DATALESS = (b"1", b"2", b"3", b"4", b"5", b"6")


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a tar file: name, kind, size and offset.

    Attributes:
        name: name as written, which may lead outside the folder.
        kind: `FILE`, `FOLDER` or `OTHER`.
        size: size of its data in bytes.
        offset: offset of the header directly before the data.
    """

    name: str
    kind: str
    size: int
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    """Parsed header block of 512 bytes, which describes the data after it."""

    name: bytes
    kind: bytes
    size: int


def read_header(block: bytes) -> Header:
    """Parse a header block.

    Raises:
        ValueError: the block is not a valid header.
    """
    if len(block) < BLOCK:
        raise ValueError("the file is truncated")
    total = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    if _number(block[148:156]) != total:
        raise ValueError("not a member's header (its checksum is wrong)")
    name, kind = block[:100].split(b"\0", 1)[0], block[156:157]
    if block[257:263] == b"ustar\0" and block[345] and kind not in (b"L", b"K"):
        name = block[345:500].split(b"\0", 1)[0] + b"/" + name
    return Header(name=name, kind=kind, size=_number(block[124:136]))


def _number(field: bytes) -> int:
    if field[0] == 0x80:  # GNU's way of writing large numbers
        return int.from_bytes(field[1:], "big")
    match = _OCTAL.fullmatch(field)
    if match is None:
        raise ValueError("not a member's header (a number is invalid)")
    return int(match.group(1) or b"0", 8)


def members(file: BinaryIO, file_size: int) -> Iterator[Member]:
    """Yield the members of a tar file in order.

    Args:
        file: the tar file; its position may change in between.
        file_size: size of the file in bytes.

    Raises:
        ValueError: the file is damaged or truncated, after the intact members.
    """
    offset, long_name = 0, b""
    records: dict[bytes, bytes] = {}
    while True:
        block = _read(file, offset, BLOCK)
        if block == _ZEROS:
            _check_end(file, offset)
            return
        header = _header(block, offset)
        data = offset + BLOCK
        size = 0 if header.kind in _DATALESS else int(records.get(b"size", header.size))
        end = data + size
        if end > file_size:
            raise ValueError(f"truncated: {_shown(long_name or header.name)} ends at byte {end}")
        if header.kind in (b"L", b"K", b"x", b"g"):
            content = _read(file, data, _checked_size(size, offset))
            if header.kind == b"L":
                long_name = content.split(b"\0", 1)[0]
            elif header.kind == b"x":
                records = _records(content, offset)
        else:
            yield _member(header, offset, long_name, records)
            long_name, records = b"", {}
        offset = data + -(-size // BLOCK) * BLOCK


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)


def _header(block: bytes, offset: int) -> Header:
    try:
        header = read_header(block)
    except ValueError as error:
        raise ValueError(f"damaged at byte {offset}: {error}") from error
    if header.kind == b"S":
        raise ValueError(f"{_shown(header.name)} is a sparse file, which shards may not contain")
    return header


def kind_of(header: Header) -> str:
    """Return the kind of a member: `FILE`, `FOLDER` or `OTHER`."""
    if header.kind == b"\0" and header.name.endswith(b"/"):  # as the oldest programs wrote folders
        return FOLDER
    return _KINDS.get(header.kind, OTHER)


def _member(header: Header, offset: int, long_name: bytes, records: dict[bytes, bytes]) -> Member:
    kind = kind_of(header)
    # sizes and holes given by POSIX records are not in the header itself
    if b"size" in records or any(key.startswith(b"GNU.sparse") for key in records):
        kind = OTHER
    name = records.get(b"path") or long_name or header.name
    return Member(name.decode("utf-8", "replace"), kind, header.size, offset)


def _checked_size(size: int, offset: int) -> int:
    if size > _MAX_HEADER:
        raise ValueError(f"damaged at byte {offset}: a header has {size} bytes")
    return size


def _records(content: bytes, offset: int) -> dict[bytes, bytes]:
    """Parse POSIX records, each ``LENGTH KEY=VALUE`` and a line feed."""
    records: dict[bytes, bytes] = {}
    place = 0
    while place < len(content) and content[place]:
        digits, _, _ = content[place : place + 9].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        record = content[place + len(digits) + 1 : place + length]
        key, separator, value = record[:-1].partition(b"=")
        if not separator or record[-1:] != b"\n":
            raise ValueError(f"damaged at byte {offset}: a record is invalid")
        records[key] = value
        place += length
    if not records.get(b"size", b"0").isdigit() or len(records.get(b"size", b"")) > 18:
        raise ValueError(f"damaged at byte {offset}: a size is not a number")
    return records


def _check_end(file: BinaryIO, offset: int) -> None:
    rest = _read(file, offset, _LOOKED_AT)
    if any(rest):
        raise ValueError(f"bytes follow the archive's end at byte {offset}; were two files joined?")


def _shown(name: bytes) -> str:
    return repr(name[-80:].decode("utf-8", "replace"))
