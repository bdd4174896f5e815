"""The pool of constrained search: finished hypotheses by number of constraints met."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captioning.decoding.machine import MachineTable
from captioning.decoding.settings import SearchRequest, SearchSettings
from captioning.decoding.state import DEAD, Pool, take_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstrainedResult:
    """The M best hypotheses of each image, best first.

    Finished ones that meet the image's constraints come first, by score. If there are fewer than M,
    the others follow by the number of constraints met (at most those required), then finished ones
    before ones cut off, then by score.

    Attributes:
        tokens: ``(I, M, T) int64`` as in `captioning.decoding.state.SearchResult`.
        scores: ``(I, M) float32``, likewise.
        lengths: ``(I, M) int64``, likewise.
        met: ``(I, M) int64`` how many constraints each hypothesis meets; 0 where there is none.
        fulfilled: ``(I, M) bool`` whether each is finished and meets as many constraints as
            required. If it is False for the first, the search found no such hypothesis.
    """

    tokens: Tensor
    scores: Tensor
    lengths: Tensor
    met: Tensor
    fulfilled: Tensor

    @property
    def satisfied(self) -> Tensor:
        """``(I,) bool`` whether the first hypothesis of each image is fulfilled."""
        return self.fulfilled[:, 0]


class LevelPool:
    """A pool for each image and level: constraints met, at most as many as required.

    Args:
        required: ``(I,) int64`` of each image: its highest level.
        settings: how many captions an image, and of how many tokens.
        request: padding and device.
    """

    def __init__(
        self, *, required: Tensor, settings: SearchSettings, request: SearchRequest
    ) -> None:
        self.required = required
        self.levels = int(required.max()) + 1 if len(required) else 1
        self.pool = Pool.for_request(settings, request, per_image=self.levels)

    def _slots(self, images: Tensor) -> Tensor:
        """``(A * L,)`` places of all levels of ``images`` in the pool."""
        levels = torch.arange(self.levels, device=images.device)
        return (images[:, None] * self.levels + levels).flatten()

    def _by_level(
        self, images: Tensor, tokens: Tensor, scores: Tensor, met: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Hypotheses ``(A, R)`` for the pools ``(A * L,)`` of all levels, dead but in their own."""
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
        """Offer hypotheses that are cut off, best first."""
        self.pool.fill(*self._by_level(images, tokens, scores, met), length)

    def worst(self, images: Tensor) -> Tensor:
        """``(A,)`` score of the M-th best that meets the constraints, ``-inf`` with fewer."""
        return self.pool.worst(images * self.levels + self.required[images])

    def result(self, table: MachineTable, eos_id: int) -> ConstrainedResult:
        """The M best of all levels, the highest level first."""
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
        # The padding may be the same token as the end.
        last = torch.arange(longest, device=tokens.device) == lengths[..., None] - 1
        ended = ((tokens == eos_id) & last).any(2)
        return ConstrainedResult(
            tokens=tokens.contiguous(),
            scores=scores.gather(1, order),
            lengths=lengths,
            met=met,
            fulfilled=ended & (met >= self.required[:, None]),
        )
