"""Real photos in place of photos: the nearest of an unlabelled pool to the caption."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from augmentation.base import AbstractImageSource, ImageRequest, Picture
from augmentation.images.pool import (
    EmbeddedPhotos,
    PhotoIndex,
    find_photos,
    same_photo,
)
from captioning.data.roster import Roster
from captioning.interfaces import JointEmbedder
from captioning.ranges import Cosine


class Retrieval(AbstractImageSource):
    """Returns for each caption the nearest photo of a pool in a joint space.

    It never returns a photo that the sample has or had, nor one of the excluded rosters, even under
    another name, size or file format. A repeated sample gets the next nearest photo.

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
        """Embed the pool, which may take minutes the first time."""
        self._load_pool()

    def images(self, requests: Sequence[ImageRequest], *, seed: int) -> list[Picture]:
        """The nearest photos; ``seed`` is not used."""
        if not requests:
            return []
        pool = self._load_pool()
        texts = self._index.encoder.embed_texts([request.sample.caption for request in requests])
        similarity = texts.float() @ pool.vectors.T
        own_thumbnails = [
            [self._index.thumbnail(path) for path in request.photos] for request in requests
        ]
        return [self._answer(pool, *row) for row in zip(similarity, own_thumbnails, strict=True)]

    def _answer(
        self, pool: EmbeddedPhotos, similarity: Tensor, own_thumbnails: Sequence[Tensor]
    ) -> Picture:
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
