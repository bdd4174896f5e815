"""Read one member of a tar file at the offset that its path gives."""

from __future__ import annotations

from pathlib import PurePosixPath

from captioning.vision.shards.tar_headers import BLOCK, FILE, kind_of, read_header

MAX_PHOTO_BYTES = 256 * 1024**2
_LONGEST = 100  # bytes of a name that its own header may hold whole


def read_member(shard: str, offset: str, name: str) -> bytes:
    """Return the bytes of a tar member.

    Args:
        shard: path of the tar file, not compressed.
        offset: offset of the member's header, in bytes.
        name: expected name of the member.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the member is missing, truncated or too large.
    """
    if not (offset.isascii() and offset.isdecimal()):
        raise ValueError(f"{offset[:20]!r} is not the offset of a member")
    with open(shard, "rb") as file:
        file.seek(int(offset[:18]))
        size = _size(file.read(BLOCK), name)
        data = file.read(size)
    if len(data) < size:
        raise ValueError(f"the member is truncated ({len(data)} of {size} bytes)")
    return data


def _size(block: bytes, name: str) -> int:
    try:
        header = read_header(block)
    except ValueError as error:
        raise ValueError(f"{error}; was the shard changed?") from error
    actual = header.name.decode("utf-8", "replace")
    # long or non-ASCII names may have their own header before this one
    is_whole = name.isascii() and len(name) < _LONGEST
    if kind_of(header) != FILE or (is_whole and str(PurePosixPath(actual)) != name):
        raise ValueError(f"the member there is {actual[:40]!r}; was the shard changed?")
    if header.size > MAX_PHOTO_BYTES:
        raise ValueError(f"the member has {header.size} bytes, the maximum is {MAX_PHOTO_BYTES}")
    return header.size
