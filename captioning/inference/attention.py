"""Attention of a captioner to the regions of a photo at each generated word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

import torch

from captioning.interfaces import AbstractTokenizer
from captioning.models.base import AbstractCaptioner
from captioning.types import Batch


@dataclass(frozen=True, kw_only=True)
class AttendedWord:
    """A word of a caption (or a subword token), with its probability and attention.

    Attributes:
        text: the word.
        probability: the model's probability of the word given the words before it, in (0, 1].
        weights: attention to the regions of the photo, see `AbstractCaptioner.attend_step`; they
            sum to 1. Empty if the model does not attend to regions.
    """

    text: str
    probability: float
    weights: tuple[float, ...]


@torch.inference_mode()
def attended_words(
    model: AbstractCaptioner[Any], batch: Batch, captions: Sequence[str]
) -> list[list[AttendedWord]]:
    """Compute probability and attention of each word in captions of one photo.

    The model scores the finished captions again, so any search may have generated them.

    Args:
        model: the model, in evaluation mode.
        batch: batch with only this photo, on the model's device.
        captions: the captions to score.
    """
    words = model.tokenizer
    ids = [_without_ends(words.encode(caption), words) for caption in captions]
    attended: list[list[AttendedWord]] = [[] for _ in ids]
    longest = max(map(len, ids), default=0)
    if not longest:
        return attended
    read = torch.full((len(ids), longest), words.eos_id)
    for row, line in enumerate(ids):
        read[row, : len(line)] = torch.tensor(line)
    read = read.to(batch.rows.device)
    begin = torch.full_like(read[:1, 0], words.bos_id)
    step = model.attend_step(begin, model.start(batch))  # one hypothesis; then one a caption
    rows = torch.zeros_like(read[:, 0])
    log_probs, state, weights = step[0][rows], step[1].select(rows), step[2]
    weights = None if weights is None else weights[rows]
    for place in range(longest):
        for row, line in enumerate(ids):
            if place < len(line):
                attended[row].append(
                    AttendedWord(
                        text=words.decode([line[place]]),
                        probability=float(log_probs[row, line[place]].exp()),
                        weights=() if weights is None else tuple(weights[row].tolist()),
                    )
                )
        if place + 1 < longest:
            log_probs, state, weights = model.attend_step(read[:, place], state)
    return attended


def square_grid(num_cells: int) -> tuple[int, int] | None:
    """Rows and columns of a square grid of cells; None if the cells form no square."""
    for number in (num_cells, num_cells - 1):
        side = isqrt(max(number, 0))
        if side and side * side == number:
            return side, side
    return None


def _without_ends(ids: list[int], words: AbstractTokenizer) -> list[int]:
    ids = ids[1:] if ids[:1] == [words.bos_id] else ids
    return ids[:-1] if ids[-1:] == [words.eos_id] else ids
