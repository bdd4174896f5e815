"""Real photos in place of photos: the nearest of an unlabelled pool to the caption."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from augmentation.base import AbstractImageSource, ImageRequest, Picture
from augmentation.image_replacement.pool import (
    EmbeddedPhotos,
    PhotoIndex,
    find_photos,
    same_photo,
)
from captioning.config.ranges import Cosine
from captioning.data.roster import Roster
from captioning.interfaces import JointEmbedder
from captioning.runtime.devices import leave_device
from captioning.vision.photo_places import photo_exists

REQUESTS_AT_ONCE = 256  # whose similarities to all photos of the pool are in memory
UNREADABLE = "a photo of the sample cannot be opened"


class Retrieval(AbstractImageSource):
    """Returns for each caption the nearest photo of a pool in a joint space.

    It never returns a photo that the sample has or had, nor one of the excluded rosters, even under
    another name, size or file format. A repeated sample gets the next nearest photo; one whose own
    photo cannot be opened gets none.

    Args:
        pool: folder of photos; subfolders count.
        encoder: the space, such as `captioning.vision.joint_space.JointSpaceEncoder`.
        exclude: rosters whose photos are never returned: validation and test. None entries are
            data sets without such a split.
        min_similarity: cosine of photo and caption, at least.
        cache_folder: of the pool's embeddings.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: the pool holds no photo, or none but excluded ones.
    """

    def __init__(
        self,
        *,
        pool: str | Path,
        encoder: JointEmbedder,
        exclude: Sequence[Roster | None] = (),
        min_similarity: Cosine = -1.0,
        cache_folder: str | Path | None = None,
    ) -> None:
        self.folder = Path(pool)
        self._photos = find_photos(self.folder)
        self._exclude = [roster for roster in exclude if roster is not None]
        self.min_similarity = min_similarity
        self._index = PhotoIndex(encoder=encoder, cache_folder=cache_folder)
        self._pool: EmbeddedPhotos | None = None

    def start(self, roster: Roster) -> None:
        """Embed the pool, which may take minutes the first time.

        Raises:
            FileNotFoundError: a photo of the roster is not there: whether one of the pool is the
                same could not be told.
            ValueError: no photo of the pool can be opened, or all are excluded.
        """
        paths = sorted({sample.image_path for sample in roster.samples})
        if missing := [path for path in paths if not photo_exists(path)]:
            raise FileNotFoundError(
                f"{len(missing)} of {len(paths)} photos of {roster.name} are not there, such as "
                f"{missing[0]}; retrieval compares them with those of the pool"
            )
        self._load_pool()
        self.release()

    def release(self) -> None:
        """Leave the accelerator to training, if the encoder can."""
        leave_device(self._index.encoder)

    def images(self, requests: Sequence[ImageRequest], *, seed: int) -> list[Picture]:
        """The nearest photos; ``seed`` is not used."""
        if not requests:
            return []
        pool = self._load_pool()
        texts = self._index.encoder.embed_texts([request.sample.caption for request in requests])
        pictures: list[Picture] = []
        for start in range(0, len(requests), REQUESTS_AT_ONCE):
            block = slice(start, start + REQUESTS_AT_ONCE)
            rows = zip(requests[block], texts[block].float() @ pool.vectors.T, strict=True)
            pictures += [self._answer(pool, *row) for row in rows]
        return pictures

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
            return Picture(path=None, problem="no other photo in the pool")
        if allowed[best] < self.min_similarity:
            return Picture(path=None, problem="no photo of the pool is like the caption")
        name = pool.paths[best].relative_to(self.folder).as_posix()
        origin = f"retrieval:{self._index.encoder.space} {float(allowed[best]):.3f} {name}"
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
                f"{self.folder}: every photo of the pool is a validation or test photo; name "
                "another pool"
            )
        rows = keep.nonzero().flatten().tolist()
        return EmbeddedPhotos(
            paths=tuple(pool.paths[row] for row in rows),
            vectors=pool.vectors[rows],
            thumbnails=pool.thumbnails[rows],
        )
