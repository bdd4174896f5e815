"""The pool of finished hypotheses of each image, and the result of a search.

Rows of a decoder state are image-major in blocks: all hypotheses of an image are contiguous, and
every image has the same number of them (1 at the first step, K beams afterwards). A model may rely
on it, for example to keep one copy of the image features per block.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captioning.decoding.settings import SearchRequest, SearchSettings

DEAD = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The M best hypotheses of each image, best first, cut-off ones after all finished ones.

    Sampling returns its samples in the order in which they were drawn instead.

    Attributes:
        tokens: ``(I, M, T) int64`` without the begin token; the end token is kept where there is
            one, and the rest is padding. T is the length of the longest.
        scores: ``(I, M) float32`` log-probability in nats under the search's normalisation;
            ``-inf`` where an image has fewer than M hypotheses (then all padding).
        lengths: ``(I, M) int64`` number of tokens, the end token counted.
    """

    tokens: Tensor
    scores: Tensor
    lengths: Tensor


class Pool:
    """The best hypotheses found so far: M slots an image, best first.

    Args:
        num_images: I.
        num_best: M, slots an image.
        max_length: T, room for tokens.
        pad_id: fills the places after a hypothesis.
        device: where the tensors live.
    """

    def __init__(
        self,
        *,
        num_images: int,
        num_best: int,
        max_length: int,
        pad_id: int,
        device: torch.device | str,
    ) -> None:
        shape = (num_images, num_best)
        self.pad_id = pad_id
        self.tokens = torch.full((*shape, max_length), pad_id, dtype=torch.long, device=device)
        self.scores = torch.full(shape, DEAD, device=device)
        self.lengths = torch.zeros(shape, dtype=torch.long, device=device)

    @classmethod
    def for_request(
        cls, settings: SearchSettings, request: SearchRequest, *, per_image: int = 1
    ) -> Pool:
        """A pool for ``settings.num_captions`` captions in each of ``per_image`` places."""
        return cls(
            num_images=request.num_images * per_image,
            num_best=settings.num_captions,
            max_length=settings.max_length,
            pad_id=request.pad_id,
            device=request.device,
        )

    def add(self, images: Tensor, tokens: Tensor, scores: Tensor, length: int) -> None:
        """Offer hypotheses; the M best of old and new stay, older ones first among equals.

        Args:
            images: ``(A,) int64`` distinct images.
            tokens: ``(A, K, T) int64``.
            scores: ``(A, K) float32``, ``-inf`` where there is no hypothesis.
            length: number of tokens of all the hypotheses offered.
        """
        joined = torch.cat([self.scores[images], scores], dim=1)
        order = joined.sort(dim=1, descending=True, stable=True).indices
        self._keep(images, tokens, scores, length, order)

    def fill(self, images: Tensor, tokens: Tensor, scores: Tensor, length: int) -> None:
        """Offer hypotheses, best first, for slots that are still free; arguments as in `add`."""
        joined = torch.cat([self.scores[images], scores], dim=1)
        order = joined.isneginf().to(torch.int8).sort(dim=1, stable=True).indices
        self._keep(images, tokens, scores, length, order)

    def _keep(
        self, images: Tensor, tokens: Tensor, scores: Tensor, length: int, order: Tensor
    ) -> None:
        order = order[:, : self.scores.shape[1]]
        lengths = torch.where(scores.isneginf(), 0, length)
        scores = torch.cat([self.scores[images], scores], dim=1).gather(1, order)
        lengths = torch.cat([self.lengths[images], lengths], dim=1).gather(1, order)
        tokens = take_rows(torch.cat([self.tokens[images], tokens], dim=1), order)
        self.scores[images], self.lengths[images], self.tokens[images] = scores, lengths, tokens

    def worst(self, images: Tensor) -> Tensor:
        """``(A,)`` score of the M-th best of ``images``, ``-inf`` while slots are free."""
        return self.scores[images, -1]

    def result(self) -> SearchResult:
        """The pool, cut to the longest hypothesis; free slots hold nothing but padding."""
        return self.best(self.scores.shape[1])

    def best(self, count: int) -> SearchResult:
        """As `result`, of the first ``count`` slots of each image."""
        scores, lengths = self.scores[:, :count], self.lengths[:, :count]
        tokens = self.tokens[:, :count].masked_fill(scores.isneginf()[..., None], self.pad_id)
        longest = int(lengths.max()) if lengths.numel() else 0
        return SearchResult(
            tokens=tokens[..., :longest].contiguous(), scores=scores, lengths=lengths
        )


def take_rows(values: Tensor, index: Tensor) -> Tensor:
    """``values (A, N, T)`` at ``index (A, M)`` of the second dimension: ``(A, M, T)``."""
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[2]))
