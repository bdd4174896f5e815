"""Score captions by image-text similarity, from separately trained encoders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from captioning.interfaces import JointEmbedder
from captioning.runtime.devices import leave_device
from captioning.vision.photo_keys import loading_for, read_ahead
from captioning.vision.photos import load_rgb
from curation.base import Context, Score

_PHOTOS_AT_ONCE = 64
_CAPTIONS_AT_ONCE = 256


class Similarity(Score):
    """Negative cosine similarity of photo and caption.

    A space that was trained on clean captions of these photos knows the answer beforehand: for a
    fair test use `curation.score.cross_fitted.CrossFitted`.

    Args:
        encoder: the space. Each photo is embedded once, and each caption when a photo first has it;
            the encoder then leaves its device to training, if it can.
        load: opens a photo.
    """

    def __init__(
        self, *, encoder: JointEmbedder, load: Callable[[Path], Image.Image] = load_rgb
    ) -> None:
        self._encoder, self._load = encoder, load
        self.name = f"unlikeness of photo and caption ({encoder.space})"
        self._photos: dict[Path, Tensor] = {}
        self._known: dict[tuple[Path, str], float] = {}

    @property
    def opens_photos(self) -> bool:
        """Whether photos are opened; each photo is opened once."""
        return True

    def scores(self, context: Context) -> Tensor:
        """Scores in [-1, 1]; NaN for removed samples."""
        scores = torch.full((len(context.view.roster),), torch.nan)
        live = list(context.live.values())
        pairs = [(sample.image_path, sample.caption) for sample in live]
        new = [pair for pair in pairs if pair not in self._known]
        if new:
            self._known |= zip(new, self._judged(new).tolist(), strict=True)
            leave_device(self._encoder)
        scores[[sample.row for sample in live]] = torch.tensor([self._known[p] for p in pairs])
        return scores

    def _judged(self, pairs: Sequence[tuple[Path, str]]) -> Tensor:
        """Scores of pairs of photo and caption, ``(N,) float32``."""
        self._embed(list({path: None for path, _ in pairs if path not in self._photos}))
        photos = torch.stack([self._photos[path] for path, _ in pairs])
        texts = [caption for _, caption in pairs]
        captions = _in_full_batches(self._encoder.embed_texts, texts, _CAPTIONS_AT_ONCE)
        return -(photos * captions).sum(1).float()

    def _embed(self, paths: Sequence[Path]) -> None:
        load = loading_for(self._encoder, self._load)
        for batch, opened in read_ahead(paths, _PHOTOS_AT_ONCE, load):
            vectors = _in_full_batches(self._encoder.embed_photos, opened, _PHOTOS_AT_ONCE)
            self._photos |= zip(batch, vectors, strict=True)


def _in_full_batches(
    embed: Callable[[Sequence[Any]], Tensor], items: Sequence[Any], size: int
) -> Tensor:
    """Embed items in batches that are all padded to the same size.

    The last bits depend on a batch's size. A resumed run batches new captions differently from an
    uninterrupted run, yet has the same scores.
    """
    parts = []
    for start in range(0, len(items), size):
        block = list(items[start : start + size])
        filling = [block[-1]] * (size - len(block))
        parts.append(embed([*block, *filling])[: len(block)])
    return torch.cat(parts)
