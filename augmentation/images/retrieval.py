"""Real photos in place of photos: the nearest of an unlabelled pool to the caption."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from augmentation.base import AbstractImageSource, ImageRequest, Picture
from augmentation.images.pool import (
    Embedded,
    PhotoIndex,
    find_photos,
    same_photo,
)
from captioning.data.roster import Roster
from captioning.interfaces import JointEmbedder
from captioning.ranges import Cosine


class Retrieval(AbstractImageSource):
    """Gives each caption the photo of a pool that lies nearest to it in a space of both.

    Never a photo that the sample has or had, and never one of the excluded rosters, also under
    another name, size or file format. A sample that comes again gets the next nearest photo.

    Args:
        pool: folder of photos; subfolders count.
        encoder: the space, such as `captioning.vision.joint_space.JointSpaceEncoder`.
        exclude: rosters whose photos must never be given: validation and test. None entries are
            data sets without such a split.
        lowest_likeness: cosine below which a photo is no answer.
        cache_folder: keeps the pool's embeddings.

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
        lowest_likeness: Cosine = -1.0,
        cache_folder: str | Path | None = None,
    ) -> None:
        self.folder = Path(pool)
        self._photos = find_photos(self.folder)
        self._exclude = [roster for roster in exclude if roster is not None]
        self.lowest_likeness = lowest_likeness
        self._index = PhotoIndex(encoder=encoder, cache_folder=cache_folder)
        self._pool: Embedded | None = None

    def start(self, roster: Roster) -> None:
        """Embed the pool, which may take minutes the first time."""
        self._ready()

    def images(self, requests: Sequence[ImageRequest], *, seed: int) -> list[Picture]:
        """The nearest photos; ``seed`` plays no part."""
        if not requests:
            return []
        pool = self._ready()
        texts = self._index.encoder.embed_texts([request.sample.caption for request in requests])
        likeness = texts.float() @ pool.vectors.T
        own = [[self._index.thumbnail(path) for path in request.photos] for request in requests]
        return [self._answer(pool, *both) for both in zip(likeness, own, strict=True)]

    def _answer(self, pool: Embedded, likeness: Tensor, own: Sequence[Tensor]) -> Picture:
        allowed = likeness.clone()
        for photo in own:
            allowed[same_photo(pool, photo)] = -torch.inf
        best = int(allowed.argmax())
        if allowed[best] == -torch.inf:
            return Picture(path=None, problem="no other photo in the pool")
        if allowed[best] < self.lowest_likeness:
            return Picture(path=None, problem="no photo of the pool is like the caption")
        name = pool.paths[best].relative_to(self.folder).as_posix()
        origin = f"retrieval:{self._index.encoder.space} {float(allowed[best]):.3f} {name}"
        return Picture(path=pool.paths[best], origin=origin)

    def _ready(self) -> Embedded:
        if self._pool is None:
            self._pool = self._without_excluded(self._index.embed(self._photos))
        return self._pool

    def _without_excluded(self, pool: Embedded) -> Embedded:
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
        return Embedded(
            paths=tuple(pool.paths[row] for row in rows),
            vectors=pool.vectors[rows],
            thumbnails=pool.thumbnails[rows],
        )
