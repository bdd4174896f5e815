"""Weights of tokens, from the spans of captions that are masked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from captioning.interfaces import AbstractTokenizer
from captioning.types import MaskedSpan, Sample


def masked_token_weights(
    samples: Sequence[Sample], tokenizer: AbstractTokenizer, width: int
) -> Tensor | None:
    """Weights ``(B, width) float32`` of the tokens' losses; None where no sample has a mask.

    A token that has a character in a masked span gets its weight, the lowest of several. All others
    have 1, begin, end and padding among them.

    Args:
        samples: of a batch, in its order.
        tokenizer: of the batch.
        width: T of the batch's tokens.
    """
    if not any(sample.masks for sample in samples):
        return None
    weights = torch.ones(len(samples), width)
    for row, sample in zip(weights, samples, strict=True):
        if sample.masks:
            spans = tokenizer.token_spans(sample.caption)
            row[: len(spans)] = torch.tensor([_weight(span, sample.masks) for span in spans])
    return weights


def _weight(span: tuple[int, int], masks: Iterable[MaskedSpan]) -> float:
    start, stop = span
    hits = (mask.weight for mask in masks if max(start, mask.start) < min(stop, mask.stop))
    return min(hits, default=1.0)
