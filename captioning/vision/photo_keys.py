"""Photos by their content: results for a photo are cached under its key."""

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
# That read files; hashing and decoding let go of Python's lock.
NUM_THREADS = max(8, min(16, num_cores()))
KEPT_AT_ONCE = 4096


class PhotoKeys:
    """Hashes of photos' files; a file that has not changed is not read again.

    Args:
        folder: folder of hashes; None: memory alone.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self._store = LineStore(folder)

    def __call__(self, paths: Iterable[Path]) -> dict[Path, str]:
        """The key of each photo, 24 hex digits of its content.

        Raises:
            FileNotFoundError: a photo that is not there.
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
    """The key of a photo by the content of its file, as `PhotoKeys` gives it."""
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def _digest(path: Path) -> str:
    with open_photo(path) as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=12))
    return digest.hexdigest()


def content_key(path: Path) -> str:
    """The key of a photo's content, as `PhotoKeys` gives it; empty where it cannot be read."""
    try:
        return _digest(path)
    except (OSError, ValueError):
        return ""


def prepared_for(judge: object, photo: Image.Image) -> Any:
    """The prepared form of a photo, which a scorer or embedder accepts with the same results.

    It is the result of the method ``prepare``; without one the photo. Threads do it while the
    network works on other photos.
    """
    prepare = getattr(judge, "prepare", None)
    return photo if prepare is None else prepare(photo)


def loading_for(judge: object, load: Callable[[Path], Image.Image]) -> Callable[[Path], Any]:
    """Opens a photo, and prepares it, see `prepared_for`."""
    return lambda path: prepared_for(judge, load(path))


def read_ahead(
    paths: Sequence[Path], size: int, load: Callable[[Path], Loaded]
) -> Iterator[tuple[Sequence[Path], list[Loaded]]]:
    """Results of ``load`` for photos, in batches of ``size``; see `read_batches`."""
    return read_batches([paths[start : start + size] for start in range(0, len(paths), size)], load)


def read_batches(
    batches: Sequence[Sequence[Path]], load: Callable[[Path], Loaded]
) -> Iterator[tuple[Sequence[Path], list[Loaded]]]:
    """Results of ``load`` for photos, batch by batch.

    The next batch is opened while one is worked on.

    Raises:
        FileNotFoundError, ValueError: ``load`` raises them.
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
