"""Where a captioner looks as it says each word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from captioning.interfaces import AbstractTokenizer
from captioning.models.base import AbstractCaptioner
from captioning.types import Batch


@runtime_checkable
class Attends(Protocol):
    """A model that attends to regions or grid cells before each word."""

    def attend_step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any, Tensor]:
        """As `AbstractStepper.step`, with the weights ``(G, R)``, whose rows sum to 1."""
        ...


@dataclass(frozen=True, kw_only=True)
class AttendedWord:
    """A word of a caption, or a part of one where tokens are parts.

    Attributes:
        text: the word.
        probability: that the model gives it after the words before it, in (0, 1].
        weights: R of the regions or grid cells; they sum to 1.
    """

    text: str
    probability: float
    weights: tuple[float, ...]


@torch.inference_mode()
def attended_words(
    model: AbstractCaptioner[Any], batch: Batch, captions: Sequence[str]
) -> list[list[AttendedWord]] | None:
    """The words of some captions of one photo; None where the model has no such attention.

    The model reads the captions again, so it does not matter which search found them.

    Args:
        model: in evaluation mode.
        batch: the photo alone, on the model's device.
        captions: as the model's search gives them.
    """
    if not isinstance(model, Attends) or not captions:
        return None
    words = model.tokenizer
    ids = [_without_ends(words.encode(caption), words) for caption in captions]
    longest = max(map(len, ids))
    read = torch.full((len(ids), longest + 1), words.eos_id)
    read[:, 0] = words.bos_id
    for row, line in enumerate(ids):
        read[row, 1 : len(line) + 1] = torch.tensor(line)
    read = read.to(batch.rows.device)
    state = model.start(batch).select(torch.zeros_like(read[:, 0]))
    attended: list[list[AttendedWord]] = [[] for _ in ids]
    for place in range(longest):
        log_probs, state, weights = model.attend_step(read[:, place], state)
        for row, line in enumerate(ids):
            if place < len(line):
                attended[row].append(
                    AttendedWord(
                        text=words.decode([line[place]]),
                        probability=float(log_probs[row, line[place]].exp()),
                        weights=tuple(weights[row].tolist()),
                    )
                )
    return attended


def _without_ends(ids: list[int], words: AbstractTokenizer) -> list[int]:
    ids = ids[1:] if ids[:1] == [words.bos_id] else ids
    return ids[:-1] if ids[-1:] == [words.eos_id] else ids
