"""Photos packed as tests need them: tar shards, Arrow and Parquet files."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


def photo(number: int = 0, size: int = 32) -> bytes:
    """A JPEG of noise that no other number has."""
    pixels = np.random.default_rng(number).integers(0, 256, (size // 4, size // 4, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).resize((size, size)).save(file, "JPEG", quality=95)
    return file.getvalue()


def write_tar(
    path: Path, members: Mapping[str, bytes] | Sequence[tuple[str, bytes]], format: int = 1
) -> Path:
    """A shard; ``format`` is one of tarfile's (1: GNU, 2: POSIX)."""
    pairs = members.items() if isinstance(members, Mapping) else members
    with tarfile.open(path, "w", format=format) as shard:
        for name, data in pairs:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            shard.addfile(member, io.BytesIO(data))
    return path


def table(photos: Sequence[bytes], captions: Sequence[Sequence[str]], **columns: list) -> pa.Table:
    """As `datasets` keeps images."""
    names = [f"photo{number}.jpg" for number in range(len(photos))]
    images = [{"bytes": b, "path": n} for b, n in zip(photos, names, strict=True)]
    return pa.table({"image": images, "captions": list(map(list, captions)), **columns})


def write_arrow(path: Path, content: pa.Table) -> Path:
    """Arrow's stream format, as ``save_to_disk`` writes it, two rows a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, content.schema) as writer:
        writer.write_table(content, max_chunksize=2)
    return path


def write_parquet(path: Path, content: pa.Table) -> Path:
    """Parquet, two rows a group."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(content, path, row_group_size=2)
    return path
