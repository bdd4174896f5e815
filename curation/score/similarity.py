"""Captions that do not fit their photo, in a space of photos and sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from captioning.types import Sample
from curation.base import AbstractScore, Context


class Similarity(AbstractScore):
    """Minus the cosine of photo and caption.

    A space that was trained on clean captions of these photos knows the answer beforehand: for a
    fair test train it on the same noisy set.

    Args:
        embed_texts: texts to ``(N, D)`` unit vectors.
        embed_photos: samples to ``(N, D)`` unit vectors of their photos; asked once for each photo.
        name: the space's.
    """

    def __init__(
        self,
        *,
        embed_texts: Callable[[Sequence[str]], Tensor],
        embed_photos: Callable[[Sequence[Sample]], Tensor],
        name: str,
    ) -> None:
        self._embed_texts = embed_texts
        self._embed_photos = embed_photos
        self.name = f"unlikeness of photo and caption ({name})"
        self._photos: dict[object, Tensor] = {}

    def scores(self, context: Context) -> Tensor:
        """In [-1, 1]; NaN for samples that are not live."""
        found = torch.full((len(context.view.roster),), torch.nan)
        live = list(context.live.values())
        new = {s.image_path: s for s in live if s.image_path not in self._photos}
        if new:
            self._photos |= zip(new, self._embed_photos(list(new.values())), strict=True)
        photos = torch.stack([self._photos[sample.image_path] for sample in live])
        captions = self._embed_texts([sample.caption for sample in live])
        found[[sample.row for sample in live]] = -(photos * captions).sum(1)
        return found
