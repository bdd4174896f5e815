"""Keys of photos by content, under which results for a photo are cached."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image

from captioning.runtime.cores import num_cores
from captioning.vision.line_store import LineStore, key_of
from captioning.vision.photo_places import open_photo, photo_stamp

Loaded = TypeVar("Loaded")
# Threads that read files; hashing and decoding release Python's lock.
NUM_THREADS = max(8, min(16, num_cores()))
KEPT_AT_ONCE = 4096


class PhotoKeys:
    """Hash the files of photos; an unchanged file is not read again.

    Args:
        folder: folder of stored hashes; None: memory only.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self._store = LineStore(folder)

    def __call__(self, paths: Iterable[Path]) -> dict[Path, str]:
        """Return the key of each photo, 24 hex digits of its content's hash.

        Raises:
            FileNotFoundError: a photo does not exist.
        """
        stamps = {path: _stamp(path) for path in dict.fromkeys(paths)}
        new = [path for path, stamp in stamps.items() if self._store.get(stamp) is None]
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            for start in range(0, len(new), KEPT_AT_ONCE):
                block = new[start : start + KEPT_AT_ONCE]
                digests = pool.map(_digest, block)
                self._store.put({stamps[path]: d for path, d in zip(block, digests, strict=True)})
        return {path: self._store.get(stamp) for path, stamp in stamps.items()}


def _stamp(path: Path) -> str:
    try:
        stamp = photo_stamp(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path}: no such photo") from error
    return key_of(os.path.abspath(path), *map(str, stamp))


def key_of_content(content: bytes) -> str:
    """Return the key of a photo's content, equal to the key from `PhotoKeys`."""
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def _digest(path: Path) -> str:
    with open_photo(path) as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=12))
    return digest.hexdigest()


def content_key(path: Path) -> str:
    """Return the key of a photo's content; empty if the file cannot be read."""
    try:
        return _digest(path)
    except (OSError, ValueError):
        return ""


def prepared_for(judge: object, photo: Image.Image) -> Any:
    """Return the prepared form of a photo, which a scorer or embedder accepts instead.

    It comes from the method ``prepare``, or is the photo if there is no such method. Threads
    prepare photos while the network works on others.
    """
    prepare = getattr(judge, "prepare", None)
    return photo if prepare is None else prepare(photo)


def loading_for(judge: object, load: Callable[[Path], Image.Image]) -> Callable[[Path], Any]:
    """Return a function that opens a photo and prepares it, see `prepared_for`."""
    return lambda path: prepared_for(judge, load(path))


def read_ahead(
    paths: Sequence[Path], size: int, load: Callable[[Path], Loaded]
) -> Iterator[tuple[Sequence[Path], list[Loaded]]]:
    """Yield the results of ``load`` for photos, loaded ahead in batches of ``size``."""
    return read_batches([paths[start : start + size] for start in range(0, len(paths), size)], load)


def read_batches(
    batches: Sequence[Sequence[Path]], load: Callable[[Path], Loaded]
) -> Iterator[tuple[Sequence[Path], list[Loaded]]]:
    """Yield the results of ``load`` for photos, batch by batch.

    The next batch is loaded while the caller works on the current one.

    Raises:
        FileNotFoundError, ValueError: an error of ``load``.
    """
    if not batches:
        return
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        coming = [pool.submit(load, path) for path in batches[0]]
        for number, batch in enumerate(batches):
            photos = [photo.result() for photo in coming]
            following = batches[number + 1] if number + 1 < len(batches) else ()
            coming = [pool.submit(load, path) for path in following]
            yield batch, photos
