"""A folder of photos without captions, embedded once."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from captioning.data.photo_folder import PHOTO_SUFFIXES
from captioning.interfaces import JointEmbedder
from captioning.runtime.tensor_files import read_tensors, write_tensors
from captioning.vision.photo_keys import prepared_for, read_ahead
from captioning.vision.photo_places import photo_stamp
from captioning.vision.photos import load_rgb

log = logging.getLogger(__name__)

SHARD = 512  # photos whose embeddings are written together
PHOTOS_AT_ONCE = 16  # photos in memory at once: one of 12 megapixels takes 36 MB
THUMBNAIL = 16  # side in pixels
# Limits for two files of one photo: mean and largest difference of their thumbnails, in grey levels
# of 255. Of 300 photos of Flickr8k saved again (JPEG quality 30, 64 to 500 pixels, other shapes)
# none differed by more than 2.8 and 19; the two most similar photos differed by 18 in the mean.
MAX_MEAN_DIFFERENCE, MAX_DIFFERENCE = 4.0, 24


@dataclass(frozen=True, kw_only=True)
class EmbeddedPhotos:
    """Photos with their embeddings and thumbnails.

    Attributes:
        paths: P files.
        vectors: ``(P, size) float32`` unit vectors in the space.
        thumbnails: ``(P, 16, 16, 3) uint8``, by which a photo is recognised under any name, size or
            file format.
    """

    paths: tuple[Path, ...]
    vectors: Tensor
    thumbnails: Tensor

    @cached_property
    def brightness(self) -> Tensor:
        """``(P,) float32`` mean grey level of each photo."""
        return torch.stack([thumbnail.float().mean() for thumbnail in self.thumbnails])


def find_photos(folder: str | Path) -> list[Path]:
    """All photos in a folder and below it, in the order of their names.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: there are none in it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder; name a folder of photos as the pool")
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in PHOTO_SUFFIXES and not path.name.startswith(".")
    )
    if not paths:
        raise ValueError(
            f"{folder}: no photos here or below ({', '.join(sorted(PHOTO_SUFFIXES))}); name a "
            "folder that holds some as the pool"
        )
    return paths


def thumbnail(image: Image.Image) -> Tensor:
    """``(16, 16, 3) uint8`` mean colours of an RGB image's fields."""
    small = image.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
    return torch.from_numpy(np.array(small, dtype=np.uint8))


def same_photo(embedded: EmbeddedPhotos, photo: Tensor) -> Tensor:
    """Positions ``(M,) int64`` of the photos whose thumbnails match ``photo``."""
    # means differ by at most the mean difference, so that few photos must be compared
    similar_brightness = (embedded.brightness - photo.float().mean()).abs() <= MAX_MEAN_DIFFERENCE
    positions = similar_brightness.nonzero().flatten()
    difference = (embedded.thumbnails[positions].short() - photo.short()).abs().flatten(1)
    is_same = (difference.float().mean(1) <= MAX_MEAN_DIFFERENCE) & (
        difference.amax(1) <= MAX_DIFFERENCE
    )
    return positions[is_same]


class PhotoIndex:
    """Embeds photos, and caches embeddings on disk.

    Args:
        encoder: the space.
        cache_folder: of the embeddings; None: no cache.
    """

    def __init__(self, *, encoder: JointEmbedder, cache_folder: str | Path | None = None) -> None:
        self.encoder = encoder
        self._folder = None if cache_folder is None else Path(cache_folder) / encoder.identity
        self._entries = {} if self._folder is None else _read_shards(self._folder)
        self._thumbnails: dict[str, Tensor] = {}

    def embed(self, paths: Sequence[Path]) -> EmbeddedPhotos:
        """Vectors and thumbnails of photos; unreadable ones are left out with a warning.

        Raises:
            ValueError: none of them can be opened.
        """
        keys = {path: _key(path) for path in dict.fromkeys(paths)}
        missing = [path for path, key in keys.items() if key not in self._entries]
        if missing:
            log.info(f"embedding {len(missing)} photos for retrieval")
        for start in range(0, len(missing), SHARD):
            self._add(missing[start : start + SHARD], keys)
        readable = [path for path in paths if keys[path] in self._entries]
        if len(readable) < len(paths):
            log.warning(f"{len(paths) - len(readable)} of {len(paths)} photos cannot be opened")
        if not readable:
            raise ValueError(f"none of {len(paths)} photos can be opened, such as {paths[0]}")
        entries = [self._entries[keys[path]] for path in readable]
        return EmbeddedPhotos(
            paths=tuple(readable),
            vectors=torch.stack([vector for vector, _ in entries]),
            thumbnails=torch.stack([thumb for _, thumb in entries]),
        )

    def thumbnail(self, path: Path) -> Tensor:
        """``(16, 16, 3) uint8`` of one photo.

        Raises:
            FileNotFoundError: it is not there.
            ValueError: it cannot be opened.
        """
        key = _key(path)
        if key in self._entries:
            return self._entries[key][1]
        if key not in self._thumbnails:
            self._thumbnails[key] = thumbnail(load_rgb(path))
        return self._thumbnails[key]

    def _seen(self, path: Path) -> list[tuple[Any, Tensor]]:
        """The photo for the encoder, with its thumbnail; nothing if it cannot be opened."""
        try:
            photo = load_rgb(path)
        except (ValueError, OSError) as error:
            log.warning(f"left out of the pool: {error}")
            return []
        return [(prepared_for(self.encoder, photo), thumbnail(photo))]

    def _add(self, paths: Sequence[Path], keys: dict[Path, str]) -> None:
        names: list[str] = []
        for batch, seen in read_ahead(paths, PHOTOS_AT_ONCE, self._seen):
            opened = [
                (path, photo) for path, photos in zip(batch, seen, strict=True) for photo in photos
            ]
            if not opened:
                continue
            vectors = self.encoder.embed_photos([image for _, (image, _) in opened])
            for (path, (_, thumb)), vector in zip(opened, vectors, strict=True):
                names.append(keys[path])
                self._entries[keys[path]] = (vector, thumb)
        if not names:
            return
        if self._folder is not None:
            digest = hashlib.sha1("".join(names).encode(), usedforsecurity=False).hexdigest()
            content = {
                "keys": torch.tensor([list(bytes.fromhex(name)) for name in names]).byte(),
                "vectors": torch.stack([self._entries[name][0] for name in names]),
                "thumbnails": torch.stack([self._entries[name][1] for name in names]),
            }
            write_tensors(self._folder / f"{digest[:16]}.safetensors", content)


def _key(path: Path) -> str:
    """A key of a file's current state, or of a path without a file."""
    try:
        stamp = photo_stamp(path)
    except OSError:
        return f"no file {path}"
    text = f"{os.path.abspath(path)}\n{stamp[0]}\n{stamp[1]}"
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _read_shards(folder: Path) -> dict[str, tuple[Tensor, Tensor]]:
    entries: dict[str, tuple[Tensor, Tensor]] = {}
    for path in sorted(folder.glob("[!.]*.safetensors")):
        try:
            content, _ = read_tensors(path)
            parts = (content["keys"], content["vectors"], content["thumbnails"])
            for key, vector, thumb in zip(*parts, strict=True):
                entries[bytes(key.tolist()).hex()] = (vector, thumb)
        except (KeyError, ValueError) as error:
            raise ValueError(f"{path}: damaged ({error}); delete it") from error
    return entries
