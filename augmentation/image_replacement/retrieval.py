"""Replace a sample's photo by the real photo of a pool that is nearest to the caption."""

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

from augmentation.base import AbstractImageSource, ImageRequest, Picture
from captioning.config.ranges import Cosine
from captioning.data.photo_folder import PHOTO_SUFFIXES
from captioning.data.roster import Roster
from captioning.interfaces import JointEmbedder
from captioning.runtime.devices import leave_device
from captioning.runtime.tensor_files import read_tensors, write_tensors
from captioning.vision.photo_keys import prepared_for, read_ahead
from captioning.vision.photo_places import photo_exists, photo_stamp
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
        """Mean grey level of each photo, ``(P,) float32``."""
        return torch.stack([thumbnail.float().mean() for thumbnail in self.thumbnails])


def find_photos(folder: str | Path) -> list[Path]:
    """Find all photos in a folder and its subfolders, sorted by name.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the folder and its subfolders hold no photos.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} does not exist: name a folder of photos for retrieval")
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in PHOTO_SUFFIXES and not path.name.startswith(".")
    )
    if not paths:
        raise ValueError(
            f"{folder} and its subfolders hold no photos ({', '.join(sorted(PHOTO_SUFFIXES))}); "
            "name a folder of photos for retrieval"
        )
    return paths


def thumbnail(image: Image.Image) -> Tensor:
    """Mean colours of an RGB image on a grid, ``(16, 16, 3) uint8``."""
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
    """Embeds photos, and caches the embeddings on disk.

    Args:
        encoder: the space.
        cache_folder: folder of the embeddings; None: no cache.
    """

    def __init__(self, *, encoder: JointEmbedder, cache_folder: str | Path | None = None) -> None:
        self.encoder = encoder
        self._folder = None if cache_folder is None else Path(cache_folder) / encoder.identity
        self._entries = {} if self._folder is None else _read_shards(self._folder)
        self._thumbnails: dict[str, Tensor] = {}

    def embed(self, paths: Sequence[Path]) -> EmbeddedPhotos:
        """Embeddings and thumbnails of photos; unreadable photos are skipped with a warning.

        Raises:
            ValueError: no photo can be opened.
        """
        keys = {path: _key(path) for path in dict.fromkeys(paths)}
        missing = [path for path, key in keys.items() if key not in self._entries]
        if missing:
            log.info(f"embedding {len(missing)} photos for retrieval")
        for start in range(0, len(missing), SHARD):
            self._add(missing[start : start + SHARD], keys)
        readable = [path for path in paths if keys[path] in self._entries]
        if len(readable) < len(paths):
            log.warning(f"skipping {len(paths) - len(readable)} unreadable of {len(paths)} photos")
        if not readable:
            raise ValueError(f"none of {len(paths)} photos can be opened, such as {paths[0]}")
        entries = [self._entries[keys[path]] for path in readable]
        return EmbeddedPhotos(
            paths=tuple(readable),
            vectors=torch.stack([vector for vector, _ in entries]),
            thumbnails=torch.stack([thumb for _, thumb in entries]),
        )

    def thumbnail(self, path: Path) -> Tensor:
        """Thumbnail of one photo, ``(16, 16, 3) uint8``.

        Raises:
            FileNotFoundError: the photo does not exist.
            ValueError: the photo cannot be opened.
        """
        key = _key(path)
        if key in self._entries:
            return self._entries[key][1]
        if key not in self._thumbnails:
            self._thumbnails[key] = thumbnail(load_rgb(path))
        return self._thumbnails[key]

    def _seen(self, path: Path) -> list[tuple[Any, Tensor]]:
        """The photo for the encoder, with its thumbnail; None if it cannot be opened."""
        try:
            photo = load_rgb(path)
        except (ValueError, OSError) as error:
            log.warning(f"retrieval skips a photo: {error}")
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
    """Cache key of a file's current state, or of a path without a file."""
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
            raise ValueError(f"{path} is damaged ({error}); delete the file") from error
    return entries


REQUESTS_AT_ONCE = 256  # whose similarities to all photos of the pool are in memory
UNREADABLE = "a photo of the sample cannot be opened"
NOTHING_LEFT = "no other photo in the pool"
NOTHING_NEAR = "no photo of the pool is like the caption"


class Retrieval(AbstractImageSource):
    """Returns, for each caption, the nearest photo of a pool in a joint embedding space.

    It never returns a photo that the sample has or had, nor one of the excluded rosters, even under
    another name, size or file format. A repeated sample gets the next nearest photo; one whose own
    photo cannot be opened gets none. Where no photo of the pool is near enough, the sample stays as
    it is.

    Args:
        pool: folder of photos; subfolders count.
        encoder: the space, such as `captioning.vision.joint_space.JointSpaceEncoder`.
        exclude: rosters whose photos are never returned: validation and test. None entries are
            datasets without such a split.
        min_similarity: least cosine of caption and photo; with ``captions``, least cosine of both
            captions, whose cosines are higher.
        give_once: whether a photo of the pool is given to one sample alone, the first that asks.
        captions: roster of the pool's photos with captions. Captions are compared with these in
            place of the photos: a photo is as near as its nearest caption. A photo without one is
            never given.
        cache_folder: folder of the pool's embeddings.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the pool holds no photo, or none but excluded ones, or ``captions`` are of none
            of its photos.
    """

    def __init__(
        self,
        *,
        pool: str | Path,
        encoder: JointEmbedder,
        exclude: Sequence[Roster | None] = (),
        min_similarity: Cosine = -1.0,
        give_once: bool = False,
        captions: Roster | None = None,
        cache_folder: str | Path | None = None,
    ) -> None:
        self.folder = Path(pool)
        self._photos = find_photos(self.folder)
        self._exclude = [roster for roster in exclude if roster is not None]
        self.min_similarity = min_similarity
        self.give_once = give_once
        self._captions: dict[str, list[str]] | None = None
        if captions is not None:
            self._captions = by_photo = _captions_by_photo(captions)
            self._photos = [photo for photo in self._photos if _place(photo) in by_photo]
            if not self._photos:
                raise ValueError(
                    f"{self.folder}: no photo in the pool has a caption in {captions.name}; set "
                    "captions to a split whose photos are in the pool"
                )
        self._index = PhotoIndex(encoder=encoder, cache_folder=cache_folder)
        self._pool: EmbeddedPhotos | None = None
        self._texts: tuple[Tensor, Tensor] | None = None

    def start(self, roster: Roster) -> None:
        """Embed the pool, which may take minutes the first time.

        Raises:
            FileNotFoundError: a photo of the roster does not exist, so that equal photos in the
                pool could not be excluded.
            ValueError: no photo of the pool can be opened, or all are excluded.
        """
        paths = sorted({sample.image_path for sample in roster.samples})
        if missing := [path for path in paths if not photo_exists(path)]:
            raise FileNotFoundError(
                f"{len(missing)} of {len(paths)} photos of {roster.name} do not exist, such as "
                f"{missing[0]}; retrieval compares the dataset's photos with the pool's photos"
            )
        self._load_pool()
        self.release()

    def release(self) -> None:
        """Free the encoder's GPU memory, if the encoder supports it."""
        leave_device(self._index.encoder)

    def images(self, requests: Sequence[ImageRequest], *, seed: int) -> list[Picture]:
        """Return the nearest photos; ``seed`` is ignored."""
        if not requests:
            return []
        pool = self._load_pool()
        texts = self._index.encoder.embed_texts([request.sample.caption for request in requests])
        taken = self._taken(pool, requests)
        pictures: list[Picture] = []
        for start in range(0, len(requests), REQUESTS_AT_ONCE):
            block = slice(start, start + REQUESTS_AT_ONCE)
            similarities = self._similarities(pool, texts[block].float())
            for request, similarity in zip(requests[block], similarities, strict=True):
                similarity[taken] = -torch.inf
                picture = self._answer(pool, request, similarity)
                if self.give_once and picture.path is not None:
                    taken[same_photo(pool, self._index.thumbnail(picture.path))] = True
                pictures.append(picture)
        return pictures

    def _taken(self, pool: EmbeddedPhotos, requests: Sequence[ImageRequest]) -> Tensor:
        """Pool photos that samples already use, ``(P,) bool``, if no photo may be used twice.

        Raises:
            ValueError: an image that a sample uses cannot be opened.
            FileNotFoundError: such an image does not exist.
        """
        taken = torch.zeros(len(pool.paths), dtype=torch.bool)
        if self.give_once:
            # The same for all requests of a call: what any sample was given so far.
            for path in dict.fromkeys(requests[0].given):
                taken[same_photo(pool, self._index.thumbnail(path))] = True
        return taken

    def _similarities(self, pool: EmbeddedPhotos, texts: Tensor) -> Tensor:
        """Cosines ``(T, P) float32`` of texts with photos, or with the photos' captions."""
        if self._captions is None:
            return texts @ pool.vectors.T
        vectors, photo_of = self._caption_vectors(pool, self._captions)
        similarities = texts @ vectors.T
        nearest = similarities.new_full((len(texts), len(pool.paths)), -torch.inf)
        return nearest.scatter_reduce_(1, photo_of.expand_as(similarities), similarities, "amax")

    def _caption_vectors(
        self, pool: EmbeddedPhotos, captions: dict[str, list[str]]
    ) -> tuple[Tensor, Tensor]:
        """Unit vectors ``(C, D) float32`` of the pool's captions, and their photos ``(C,)``."""
        if self._texts is None:
            pairs = [
                (text, row)
                for row, path in enumerate(pool.paths)
                for text in captions[_place(path)]
            ]
            log.info(f"embedding {len(pairs)} captions for retrieval")
            vectors = self._index.encoder.embed_texts([text for text, _ in pairs])
            self._texts = (vectors.float(), torch.tensor([row for _, row in pairs]))
        return self._texts

    def _answer(self, pool: EmbeddedPhotos, request: ImageRequest, similarity: Tensor) -> Picture:
        try:
            own_thumbnails = [self._index.thumbnail(path) for path in request.photos]
        except (OSError, ValueError):
            return Picture(path=None, problem=UNREADABLE)
        allowed = similarity.clone()
        for photo in own_thumbnails:
            allowed[same_photo(pool, photo)] = -torch.inf
        best = int(allowed.argmax())
        if allowed[best] == -torch.inf:
            return Picture(path=None, problem=NOTHING_LEFT)
        if allowed[best] < self.min_similarity:
            return Picture(path=None, problem=NOTHING_NEAR)
        name = pool.paths[best].relative_to(self.folder).as_posix()
        by = "" if self._captions is None else "captions in "
        origin = f"retrieval:{by}{self._index.encoder.space} {float(allowed[best]):.3f} {name}"
        return Picture(path=pool.paths[best], origin=origin)

    def _load_pool(self) -> EmbeddedPhotos:
        if self._pool is None:
            self._pool = self._without_excluded(self._index.embed(self._photos))
        return self._pool

    def _without_excluded(self, pool: EmbeddedPhotos) -> EmbeddedPhotos:
        photos = {sample.image_path for roster in self._exclude for sample in roster.samples}
        if not photos:
            return pool
        keep = torch.ones(len(pool.paths), dtype=torch.bool)
        for thumbnail in [self._index.thumbnail(path) for path in sorted(photos)]:
            keep[same_photo(pool, thumbnail)] = False
        if not keep.any():
            raise ValueError(
                f"{self.folder}: every photo in the pool is a validation or test photo; name "
                "another pool"
            )
        rows = keep.nonzero().flatten().tolist()
        return EmbeddedPhotos(
            paths=tuple(pool.paths[row] for row in rows),
            vectors=pool.vectors[rows],
            thumbnails=pool.thumbnails[rows],
        )


def _place(path: Path) -> str:
    """Absolute path of a photo's file."""
    return os.path.realpath(path)


def _captions_by_photo(roster: Roster) -> dict[str, list[str]]:
    captions: dict[str, list[str]] = {}
    for sample in roster.samples:
        captions.setdefault(_place(sample.image_path), []).append(sample.caption)
    return captions
