"""Beam search by mean log-probability, as in ClipCap and ViECap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from captioning.decoding.beam import check_num_captions
from captioning.decoding.candidates import best_tokens
from captioning.decoding.search import AbstractSearch
from captioning.decoding.settings import SearchRequest
from captioning.decoding.state import DEAD, SearchResult, take_rows
from captioning.decoding.token_rules import Rules
from captioning.interfaces import AbstractDecoderState, AbstractStepper


@final
@dataclass(frozen=True, kw_only=True)
class AveragedBeamSearch(AbstractSearch):
    """Beam search that ranks hypotheses at every step by mean log-probability per token.

    `BeamSearch` compares sums of unfinished hypotheses, and scores of ended ones. Here one beam
    holds both kinds: an ended hypothesis keeps its slot while its mean is among the best
    K. An image is done when all K have ended. Ties are broken by the parent's position, then by
    token id.
    """

    unused: ClassVar[tuple[str, ...]] = (
        "normalisation",
        "length_penalty",
        "per_node_beam",
        "exact",
        "temperature",
        "seed",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_num_captions(self.settings)

    @torch.no_grad()
    def __call__(
        self, stepper: AbstractStepper, state: AbstractDecoderState, request: SearchRequest
    ) -> SearchResult:
        """Return the ``num_captions`` hypotheses with the highest means for each image."""
        beams = _Beams(self, request)
        last = torch.full_like(beams.active, request.bos_id)
        for length in range(1, self.settings.max_length + 1):
            log_probs, state = stepper.step(last, state)
            rows = beams.advance(log_probs, length)
            if not len(rows):
                break
            state = state.select(rows)
            last = beams.tokens[beams.active, :, length - 1].reshape(-1)
        return beams.result(self.settings.num_captions)


class _Beams:
    """K hypotheses of each image, best first; empty slots have score ``-inf`` and no tokens.

    Attributes:
        active: ``(A,) int64`` images with an unfinished hypothesis.
        tokens: ``(I, K, T) int64``, padded.
        sums: ``(I, K) float32`` of log-probabilities.
        lengths: ``(I, K) int64`` numbers of tokens, including the end token.
        ended: ``(I, K) bool``.
    """

    def __init__(self, search: AveragedBeamSearch, request: SearchRequest) -> None:
        self.rules, self.pad_id = Rules.build(search.settings, request), request.pad_id
        shape, device = (request.num_images, search.settings.beam_size), request.device
        self.active = torch.arange(request.num_images, device=device)
        tokens = torch.full((*shape, search.settings.max_length), request.pad_id, device=device)
        self.tokens = tokens.long()
        self.sums = torch.full(shape, DEAD, device=device)
        self.sums[:, 0] = 0
        self.lengths = torch.zeros(shape, dtype=torch.long, device=device)
        self.ended = torch.zeros(shape, dtype=torch.bool, device=device)

    def advance(self, log_probs: Tensor, length: int) -> Tensor:
        """Make one step for the active images.

        Args:
            log_probs: ``(A, V)`` at the first step, ``(A * K, V)`` afterwards.
            length: length of the unfinished hypotheses.

        Returns:
            ``(A' * K,)`` parent rows of the images that continue.
        """
        active, size = self.active, self.sums.shape[1]
        width = 1 if length == 1 else size
        sums, tokens, lengths = self._continuations(log_probs, length, width)
        means = sums / lengths
        order = means.flatten(1).sort(dim=1, descending=True, stable=True).indices[:, :size]
        parents = order // sums.shape[2]
        tokens = tokens.flatten(1).gather(1, order)
        lengths = lengths.expand_as(means).flatten(1).gather(1, order)
        before = self.ended[active].gather(1, parents)

        longer = take_rows(self.tokens[active], parents)
        longer[:, :, length - 1] = tokens
        self.tokens[active], self.lengths[active] = longer, lengths
        # Rounded as in the published search.
        self.sums[active] = means.flatten(1).gather(1, order) * lengths
        dead = self.sums[active].isneginf()
        ended = before | dead | self.rules.ended(tokens)
        self.ended[active] = ended
        goes_on = (~ended.all(1)).nonzero().squeeze(1)
        self.active = active[goes_on]
        return (goes_on[:, None] * width + parents[goes_on]).reshape(-1)

    def _continuations(
        self, log_probs: Tensor, length: int, width: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return sums and tokens ``(A, W, C)`` of continuations, and lengths ``(A, W, 1)``.

        An ended hypothesis continues only as itself, with padding that does not count.
        """
        active, size = self.active, self.sums.shape[1]
        history = self.tokens[active, :width, : length - 1].flatten(0, 1)
        values, tokens = best_tokens(
            self.rules.adjusted(log_probs, history),
            count=size,
            forbidden=self.rules.forbidden(length),
        )
        values, tokens = values.view(-1, width, size), tokens.view(-1, width, size)
        ended = self.ended[active, :width, None]
        itself = torch.full_like(values, DEAD)
        itself[..., 0] = 0
        values = torch.where(ended, itself, values)
        tokens = tokens.masked_fill(ended, self.pad_id)
        lengths = self.lengths[active, :width, None] + (~ended).long()
        return self.sums[active, :width, None] + values, tokens, lengths

    def result(self, count: int) -> SearchResult:
        """Return the best ``count`` hypotheses of each image."""
        scores, order = (self.sums / self.lengths).sort(dim=1, descending=True, stable=True)
        scores, order = scores[:, :count], order[:, :count]
        is_dead = scores.isneginf()
        lengths = self.lengths.gather(1, order).masked_fill(is_dead, 0)
        tokens = take_rows(self.tokens, order).masked_fill(is_dead[..., None], self.pad_id)
        longest = int(lengths.max()) if lengths.numel() else 0
        return SearchResult(
            tokens=tokens[..., :longest].contiguous(), scores=scores, lengths=lengths
        )
