"""The best captions of each image by constraints met, then by score, whether they have ended or not."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captioning.decoding.level_pool import ConstrainedResult
from captioning.decoding.machine import MachineTable
from captioning.decoding.settings import SearchRequest, SearchSettings
from captioning.decoding.state import DEAD, SearchResult, take_rows


@dataclass(slots=True, kw_only=True)
class Results:
    """The M best captions of I images so far.

    Attributes:
        required: ``(I,) int64`` constraints that must be met.
        tokens: ``(I, M, T) int64``, padded.
        scores: ``(I, M) float32``, ``-inf`` in free places.
        lengths: ``(I, M) int64``.
        levels: ``(I, M) int64`` constraints met, at most those required.
        pad_id: the padding.
    """

    required: Tensor
    tokens: Tensor
    scores: Tensor
    lengths: Tensor
    levels: Tensor
    pad_id: int

    @classmethod
    def empty(cls, settings: SearchSettings, request: SearchRequest, required: Tensor) -> Results:
        """No captions."""
        shape = (request.num_images, settings.num_captions)
        zeros = torch.zeros(shape, dtype=torch.long, device=request.device)
        size = (*shape, settings.max_length)
        return cls(
            required=required,
            tokens=torch.full(size, request.pad_id, device=request.device),
            scores=torch.full(shape, DEAD, device=request.device),
            lengths=zeros,
            levels=zeros.clone(),
            pad_id=request.pad_id,
        )

    def offer(
        self, images: Tensor, tokens: Tensor, scores: Tensor, lengths: Tensor, met: Tensor
    ) -> None:
        """Keep the best of those that are here and of further ones.

        Args:
            images: ``(A,) int64``, distinct.
            tokens: ``(A, R, T) int64``.
            scores: ``(A, R) float32``, ``-inf`` where there is none.
            lengths: ``(A, R) int64``.
            met: ``(A, R) int64`` constraints met.
        """
        levels = torch.minimum(met, self.required[images, None])
        all_scores = torch.cat([self.scores[images], scores], 1)
        all_levels = torch.cat([self.levels[images], levels], 1)
        order = all_scores.sort(dim=1, descending=True, stable=True).indices
        ranks = all_levels.masked_fill(all_scores.isneginf(), -1).gather(1, order)
        order = order.gather(1, ranks.sort(dim=1, descending=True, stable=True).indices)
        order = order[:, : self.scores.shape[1]]
        self.scores[images] = all_scores.gather(1, order)
        self.levels[images] = all_levels.gather(1, order)
        self.lengths[images] = torch.cat([self.lengths[images], lengths], 1).gather(1, order)
        self.tokens[images] = take_rows(torch.cat([self.tokens[images], tokens], 1), order)

    def worst(self, images: Tensor) -> Tensor:
        """``(A,)`` score of the last, ``-inf`` where it meets too little or there are too few."""
        short = self.levels[images, -1] < self.required[images]
        return self.scores[images, -1].masked_fill(short, DEAD)

    def plain(self) -> SearchResult:
        """As of a search without constraints."""
        free = self.scores.isneginf()
        lengths = self.lengths.masked_fill(free, 0)
        longest = int(lengths.max()) if lengths.numel() else 0
        places = torch.arange(longest, device=lengths.device)
        tokens = self.tokens[..., :longest].masked_fill(places >= lengths[..., None], self.pad_id)
        return SearchResult(tokens=tokens, scores=self.scores, lengths=lengths)

    def constrained(self, table: MachineTable, eos_id: int) -> ConstrainedResult:
        """What is met is counted anew, by machines ``table`` that miss no phrase."""
        plain = self.plain()
        images = torch.arange(len(plain.scores), device=plain.scores.device)[:, None]
        met = table.met[images, table.run(plain.tokens)].masked_fill(plain.lengths == 0, 0)
        places = torch.arange(plain.tokens.shape[2], device=met.device)
        ended = ((plain.tokens == eos_id) & (places == plain.lengths[..., None] - 1)).any(2)
        return ConstrainedResult(
            tokens=plain.tokens,
            scores=plain.scores,
            lengths=plain.lengths,
            met=met,
            fulfilled=ended & (met >= self.required[:, None]),
        )
