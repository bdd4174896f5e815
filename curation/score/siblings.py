"""Captions that say something else than the image's other captions; no image is looked at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from curation.base import AbstractScore, Context


class SentenceEmbedder(Protocol):
    """Text to unit vectors, such as `captioning.text.sentences.SentenceEncoder`."""

    def embed(self, texts: Sequence[str]) -> Tensor:
        """``(len(texts), D) float32``."""


class Siblings(AbstractScore):
    """One minus the mean cosine of a caption's sentence embedding to the image's other captions.

    Args:
        sentences: the encoder. Its own training data may hold the captions (MiniLM's names COCO
            and Flickr30k), which flatters it on them.
    """

    name = "distance to the image's other captions"

    def __init__(self, *, sentences: SentenceEmbedder) -> None:
        self._sentences = sentences

    def scores(self, context: Context) -> Tensor:
        """In [0, 2]; NaN for samples that are not live or the only ones of their image."""
        found = torch.full((len(context.view.roster),), torch.nan)
        rows_of: dict[str, list[int]] = defaultdict(list)
        for row, sample in context.live.items():
            rows_of[sample.image_id].append(row)
        groups = [rows for rows in rows_of.values() if len(rows) > 1]
        rows = [row for group in groups for row in group]
        if not rows:
            return found
        vectors = self._sentences.embed([context.live[row].caption for row in rows]).float()
        image = torch.repeat_interleave(torch.tensor([len(group) for group in groups]))
        total = torch.zeros(len(groups), vectors.shape[1]).index_add_(0, image, vectors)
        count = torch.bincount(image)[image] - 1
        cosine = (vectors * (total[image] - vectors)).sum(1) / count
        found[rows] = 1 - cosine
        return found
