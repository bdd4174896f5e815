"""A joint space for tests: texts are somewhere, by their letters."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize


class TextSpace:
    """Embeds texts as unit vectors of ``size`` values."""

    def __init__(self, *, size: int) -> None:
        self.size = size

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """``(len(texts), size) float32``."""
        counts = [[0.0] * self.size for _ in texts]
        for row, text in zip(counts, texts, strict=True):
            for place, letter in enumerate(text):
                row[(ord(letter) * 7 + place) % self.size] += 1
        rows = torch.tensor(counts).reshape(len(texts), self.size)
        return normalize(rows - rows.mean(1, keepdim=True), dim=-1)
