"""Pool of finished hypotheses per image, and the result of a search.

Rows of a decoder state are grouped by image: all hypotheses of an image are contiguous, and
every image has the same number (1 at the first step, K beams afterwards). Models may rely on
this order, for example to keep one copy of the image features per group.

`LevelPool` is the pool of constrained search: finished hypotheses by number of constraints met.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captioning.decoding.machine import MachineTable
from captioning.decoding.settings import SearchRequest, SearchSettings

DEAD = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The M best hypotheses of each image, best first, cut-off ones after finished ones.

    Sampling returns its samples in sampling order instead.

    Attributes:
        tokens: ``(I, M, T) int64`` without the begin token, with the end token if there is one,
            then padding. T is the length of the longest caption.
        scores: ``(I, M) float32`` log-probability in nats under the search's normalisation;
            ``-inf`` and padding only where an image has fewer than M hypotheses.
        lengths: ``(I, M) int64`` numbers of tokens, including the end token.
    """

    tokens: Tensor
    scores: Tensor
    lengths: Tensor


class Pool:
    """The best hypotheses found so far: M slots per image, best first.

    Args:
        num_images: number of images I.
        num_best: slots per image M.
        max_length: maximum number of tokens T.
        pad_id: token that fills the positions after a hypothesis.
        device: device of the tensors.
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
        """Build a pool for ``settings.num_captions`` captions at ``per_image`` places per image."""
        return cls(
            num_images=request.num_images * per_image,
            num_best=settings.num_captions,
            max_length=settings.max_length,
            pad_id=request.pad_id,
            device=request.device,
        )

    def add(self, images: Tensor, tokens: Tensor, scores: Tensor, length: int) -> None:
        """Offer hypotheses; the M best of old and new stay, older ones first on ties.

        Args:
            images: ``(A,) int64`` distinct images.
            tokens: ``(A, K, T) int64``.
            scores: ``(A, K) float32``, ``-inf`` in empty slots.
            length: number of tokens of every offered hypothesis.
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
        """Return the M-th best score ``(A,)`` of ``images``, ``-inf`` while slots are free."""
        return self.scores[images, -1]

    def result(self) -> SearchResult:
        """Return the pool, cut to the longest hypothesis; free slots hold only padding."""
        return self.best(self.scores.shape[1])

    def best(self, count: int) -> SearchResult:
        """Return the first ``count`` slots of each image; see `result`."""
        scores, lengths = self.scores[:, :count], self.lengths[:, :count]
        tokens = self.tokens[:, :count].masked_fill(scores.isneginf()[..., None], self.pad_id)
        longest = int(lengths.max()) if lengths.numel() else 0
        return SearchResult(
            tokens=tokens[..., :longest].contiguous(), scores=scores, lengths=lengths
        )


def take_rows(values: Tensor, index: Tensor) -> Tensor:
    """Select ``values (A, N, T)`` at ``index (A, M)`` of the second dimension: ``(A, M, T)``."""
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstrainedResult:
    """The M best hypotheses of each image in constrained search, best first.

    Finished hypotheses that meet the image's constraints come first, by score. If there are fewer
    than M, others follow by the number of constraints met (at most the required number), then
    finished before cut off, then by score.

    Attributes:
        tokens: ``(I, M, T) int64`` as in `captioning.decoding.state.SearchResult`.
        scores: ``(I, M) float32``, as in `SearchResult`.
        lengths: ``(I, M) int64``, as in `SearchResult`.
        met: ``(I, M) int64`` number of constraints each hypothesis meets; 0 in empty slots.
        fulfilled: ``(I, M) bool`` whether a hypothesis is finished and meets the required number.
            If False for the first hypothesis, the search found no such hypothesis.
    """

    tokens: Tensor
    scores: Tensor
    lengths: Tensor
    met: Tensor
    fulfilled: Tensor

    @property
    def satisfied(self) -> Tensor:
        """Whether the first hypothesis of each image is fulfilled, ``(I,) bool``."""
        return self.fulfilled[:, 0]


class LevelPool:
    """Pools of captions for each image and each number of constraints met (level).

    Args:
        required: ``(I,) int64`` highest level of each image.
        settings: settings with the number of captions per image and the maximum length.
        request: the request with padding and device.
    """

    def __init__(
        self, *, required: Tensor, settings: SearchSettings, request: SearchRequest
    ) -> None:
        self.required = required
        self.levels = int(required.max()) + 1 if len(required) else 1
        self.pool = Pool.for_request(settings, request, per_image=self.levels)

    def _slots(self, images: Tensor) -> Tensor:
        """Return the pool positions ``(A * L,)`` of all levels of ``images``."""
        levels = torch.arange(self.levels, device=images.device)
        return (images[:, None] * self.levels + levels).flatten()

    def _by_level(
        self, images: Tensor, tokens: Tensor, scores: Tensor, met: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Arrange hypotheses ``(A, R)`` for the pools ``(A * L,)``; others' levels get ``-inf``."""
        level = torch.minimum(met, self.required[images][:, None])[:, None]
        is_level = level == torch.arange(self.levels, device=met.device)[:, None]
        scores = torch.where(is_level, scores[:, None], DEAD).flatten(0, 1)
        return self._slots(images), tokens.repeat_interleave(self.levels, dim=0), scores

    def add(self, images: Tensor, tokens: Tensor, scores: Tensor, met: Tensor, length: int) -> None:
        """Offer hypotheses that end with ``length`` tokens."""
        self.pool.add(*self._by_level(images, tokens, scores, met), length)

    def fill(
        self, images: Tensor, tokens: Tensor, scores: Tensor, met: Tensor, length: int
    ) -> None:
        """Offer cut-off hypotheses, best first."""
        self.pool.fill(*self._by_level(images, tokens, scores, met), length)

    def worst(self, images: Tensor) -> Tensor:
        """Return the M-th best score ``(A,)`` that meets the constraints, ``-inf`` with fewer."""
        return self.pool.worst(images * self.levels + self.required[images])

    def result(self, table: MachineTable, eos_id: int) -> ConstrainedResult:
        """Return the M best hypotheses over all levels, the highest level first."""
        pooled = self.pool.result()
        num_images, num_best = len(self.required), pooled.scores.shape[1]
        scores, lengths = (
            values.view(num_images, self.levels, num_best).flip(1).flatten(1)
            for values in (pooled.scores, pooled.lengths)
        )
        order = scores.isneginf().to(torch.int8).sort(dim=1, stable=True).indices[:, :num_best]
        lengths = lengths.gather(1, order)
        longest = int(lengths.max()) if lengths.numel() else 0
        shape = (num_images, self.levels, num_best, pooled.tokens.shape[2])
        tokens = take_rows(pooled.tokens.view(shape).flip(1).flatten(1, 2), order)[..., :longest]
        images = torch.arange(num_images, device=tokens.device)[:, None]
        met = table.met[images, table.run(tokens)]
        # The padding token may equal the end token.
        last = torch.arange(longest, device=tokens.device) == lengths[..., None] - 1
        ended = ((tokens == eos_id) & last).any(2)
        return ConstrainedResult(
            tokens=tokens.contiguous(),
            scores=scores.gather(1, order),
            lengths=lengths,
            met=met,
            fulfilled=ended & (met >= self.required[:, None]),
        )
