"""Beam search with the rules of transformers 4, as used in the papers of BLIP and VL-BART."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from captioning.decoding.beam import Beams, check_num_captions
from captioning.decoding.candidates import best_tokens
from captioning.decoding.search import AbstractSearch
from captioning.decoding.settings import SearchRequest
from captioning.decoding.state import DEAD, Pool, SearchResult, take_rows
from captioning.decoding.token_rules import Rules
from captioning.interfaces import AbstractDecoderState, AbstractStepper


@final
@dataclass(frozen=True, kw_only=True)
class TransformersBeamSearch(AbstractSearch):
    """Beam search that finds the same captions as ``generate`` of transformers 4.

    It differs from `BeamSearch` as follows:

    - A caption's score is divided by a power of the length of begin token, prompt and caption
      without the end token.
    - An image has K slots for ended captions. Its search ends once the slots are full and the best
      continuation, divided by a power of its length before this token, does not beat the worst
      slot; with ``early_stopping`` as soon as the slots are full.
    - Captions cut off at ``max_length`` compete with ended captions.
    - ``no_repeat_ngram_size`` counts n-grams of begin token, prompt and caption together.

    Ties are broken as in `BeamSearch`; transformers does not define their order.

    Attributes:
        early_stopping: end an image's search as soon as K captions have ended.
    """

    early_stopping: bool = False
    unused: ClassVar[tuple[str, ...]] = (
        "normalisation",
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
        """Return the ``num_captions`` best captions of each image; see `AbstractSearch`."""
        search, max_length = _Search(self, request), self.settings.max_length
        beams = Beams.start(search.pool, torch.arange(request.num_images, device=request.device))
        last = torch.full_like(beams.images, request.bos_id)
        for length in range(1, max_length + 1):
            log_probs, state = stepper.step(last, state)
            beams, rows = search.advance(beams, log_probs, length)
            if not len(beams.images):
                break
            if length < max_length:
                state = state.select(rows)
                last = beams.tokens[:, :, length - 1].reshape(-1)
        scores = search.scores(beams.scores, max_length)
        search.pool.add(beams.images, beams.tokens, scores, max_length)
        return search.pool.best(self.settings.num_captions)


class _Search:
    """State of one search call: its rules and the captions that have ended."""

    def __init__(self, search: TransformersBeamSearch, request: SearchRequest) -> None:
        self.settings = search.settings
        self.early_stopping = search.early_stopping
        self.rules = Rules.build(search.settings, request)
        places = search.changed(num_captions=search.settings.beam_size).settings
        self.pool = Pool.for_request(places, request)

    def scores(self, totals: Tensor, length: int) -> Tensor:
        """Return scores for sums over captions of ``length`` tokens without the end token."""
        return totals / (len(self.rules.read) + length) ** self.settings.length_penalty

    def advance(self, beams: Beams, log_probs: Tensor, length: int) -> tuple[Beams, Tensor]:
        """Make one step; see `captioning.decoding.beam`.

        Returns:
            Beams of the images that continue, and ``(A' * K,)`` the row of each parent.
        """
        size, width = self.settings.beam_size, beams.scores.shape[1]
        totals, parents, tokens = self._candidates(beams, log_probs, length)
        longer = take_rows(beams.tokens, parents)
        longer[:, :, length - 1] = tokens
        ended = self.rules.ended(tokens)
        finished = totals.masked_fill(~ended, DEAD)[:, :size]
        self.pool.add(beams.images, longer[:, :size], self.scores(finished, length - 1), length)

        order = ended.to(torch.int8).sort(dim=1, stable=True).indices[:, :size]
        worst = self.pool.worst(beams.images)
        is_done = worst > DEAD
        if not self.early_stopping:
            is_done &= worst >= self.scores(totals[:, 0], length - 1)
        active = (~is_done).nonzero().squeeze(1)
        order, rows = order[active], active[:, None] * width
        after = Beams(
            images=beams.images[active],
            tokens=take_rows(longer[active], order),
            scores=totals.masked_fill(ended, DEAD)[active].gather(1, order),
        )
        return after, (rows + parents[active].gather(1, order)).reshape(-1)

    def _candidates(
        self, beams: Beams, log_probs: Tensor, length: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return sum, parent and token ``(A, C)`` of the best continuations, best first."""
        num_images, width = beams.scores.shape
        history = beams.tokens[:, :, : length - 1].flatten(0, 1)
        log_probs = self.rules.penalised(log_probs, history)
        read = self.rules.read.expand(len(history), -1)
        log_probs = self.rules.without_repeats(log_probs, torch.cat([read, history], dim=1))
        log_probs = self.rules.closed(log_probs, length)
        count = self.settings.beam_size * (1 + len(self.rules.ends))
        forbidden = self.rules.forbidden(length)
        values, tokens = best_tokens(log_probs, count=count, forbidden=forbidden)
        totals = (beams.scores.reshape(-1, 1) + values).view(num_images, width * count)
        totals, places = totals.sort(dim=1, descending=True, stable=True)
        totals, places = totals[:, :count], places[:, :count]
        return totals, places // count, tokens.reshape(num_images, -1).gather(1, places)
