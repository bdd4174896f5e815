"""A sentence encoder that costs almost no time, for `bench_size.py`.

What is measured is what the project does with millions of embeddings; how long a network computes
them is a question of that network alone.
"""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch import Tensor

from captioning.text.sentences import SentenceEncoder, build_sentence_encoder


class DrawnSentences(SentenceEncoder):
    """Maps each text to one of 4,096 random vectors by a checksum, and caches it as usual."""

    _drawn: Tensor

    def _run(self, texts: list[str]) -> Tensor:
        places = [zlib.crc32(text.encode()) % len(self._drawn) for text in texts]
        return self._drawn[places]


def build_drawn_sentences(**arguments: Any) -> SentenceEncoder:
    """Build the packaged encoder with random vectors in place of its network."""
    encoder = build_sentence_encoder(**arguments)
    encoder.__class__ = DrawnSentences
    drawn = torch.randn(4096, encoder.dim, generator=torch.Generator().manual_seed(0))
    encoder._drawn = torch.nn.functional.normalize(drawn, dim=-1).half()
    return encoder
