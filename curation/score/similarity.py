"""Captions that do not fit their photo, in a space of photos and sentences trained elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from captioning.interfaces import JointEmbedder
from captioning.vision.photo_keys import loading_for, read_ahead
from captioning.vision.photos import load_rgb
from curation.base import AbstractScore, Context

_PHOTOS_AT_ONCE = 64


class Similarity(AbstractScore):
    """Minus the cosine of photo and caption.

    A space that was trained on clean captions of these photos knows the answer beforehand: for a
    fair test use `curation.score.cross_fitted.CrossFitted`.

    Args:
        encoder: the space. Each photo is embedded once.
        load: opens a photo.
    """

    def __init__(
        self, *, encoder: JointEmbedder, load: Callable[[Path], Image.Image] = load_rgb
    ) -> None:
        self._encoder, self._load = encoder, load
        self.name = f"unlikeness of photo and caption ({encoder.space})"
        self._photos: dict[Path, Tensor] = {}

    @property
    def opens_photos(self) -> bool:
        """Each of them once."""
        return True

    def scores(self, context: Context) -> Tensor:
        """In [-1, 1]; NaN for samples that are not live."""
        scores = torch.full((len(context.view.roster),), torch.nan)
        live = list(context.live.values())
        self._embed(list({s.image_path: None for s in live if s.image_path not in self._photos}))
        photos = torch.stack([self._photos[sample.image_path] for sample in live])
        captions = self._encoder.embed_texts([sample.caption for sample in live])
        scores[[sample.row for sample in live]] = -(photos * captions).sum(1).float()
        return scores

    def _embed(self, paths: Sequence[Path]) -> None:
        load = loading_for(self._encoder, self._load)
        for batch, opened in read_ahead(paths, _PHOTOS_AT_ONCE, load):
            self._photos |= zip(batch, self._encoder.embed_photos(opened), strict=True)
