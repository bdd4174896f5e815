"""How search keeps its hypotheses: the rows of a decoder state, and what a search returns.

Rows are image-major in blocks: all hypotheses of an image are contiguous, and every image has the
same number of them (1 at the first step, K beams afterwards). A model may rely on it, for example
to keep one copy of the image features per block.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The best hypotheses of each image, best first.

    Attributes:
        tokens: ``(I, M, T) int64`` without the begin token; the end token is kept where there is
            one, and the rest is padding. T is the length of the longest.
        scores: ``(I, M) float32`` log-probability in nats under the search's normalisation,
            falling along M; ``-inf`` where fewer than M hypotheses exist (then all padding).
        lengths: ``(I, M) int64`` number of tokens, the end token counted.
    """

    tokens: Tensor
    scores: Tensor
    lengths: Tensor


def block_rows(images: Tensor, width: int) -> Tensor:
    """Rows ``(len(images) * width,)`` of the blocks of ``images``, ``width`` rows a block."""
    offsets = torch.arange(width, device=images.device)
    return (images[:, None] * width + offsets).reshape(-1)


def forbid(log_probs: Tensor, token_ids: Tensor | None) -> Tensor:
    """``(G, V)`` log-probabilities with ``-inf`` at ``token_ids``; the input is left as it was."""
    if token_ids is None or token_ids.numel() == 0:
        return log_probs
    return log_probs.index_fill(1, token_ids, float("-inf"))
