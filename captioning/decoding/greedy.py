"""Greedy search: the most probable token at each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch

from captioning.decoding.candidates import best_tokens
from captioning.decoding.search import AbstractSearch
from captioning.decoding.settings import SearchRequest
from captioning.decoding.state import DEAD, Pool, SearchResult
from captioning.decoding.token_rules import Rules
from captioning.interfaces import AbstractDecoderState, AbstractStepper


@final
@dataclass(frozen=True, kw_only=True)
class GreedySearch(AbstractSearch):
    """Greedy search: extend each image's hypothesis by the most probable token, lowest id on ties.

    Images leave the batch when their hypothesis ends. If all next tokens have probability 0, the
    image has no hypothesis, as in beam search. Scores are summed log-probabilities.
    """

    unused: ClassVar[tuple[str, ...]] = (
        "num_captions",
        "beam_size",
        "length_penalty",
        "normalisation",
        "per_node_beam",
        "exact",
        "temperature",
        "seed",
    )

    @torch.no_grad()
    def __call__(
        self, stepper: AbstractStepper, state: AbstractDecoderState, request: SearchRequest
    ) -> SearchResult:
        """Return one caption per image (M = 1); see `AbstractSearch`."""
        rules, max_length = Rules.build(self.settings, request), self.settings.max_length
        pool = Pool.for_request(self.settings, request)
        pool.scores.zero_()
        images = torch.arange(request.num_images, device=request.device)
        last = torch.full_like(images, request.bos_id)
        for length in range(1, max_length + 1):
            history = pool.tokens[images, 0, : length - 1]
            log_probs, state = rules.next_log_probs(stepper, last, state, history)
            values, tokens = best_tokens(log_probs, count=1, forbidden=rules.forbidden(length))
            values, last = values[:, 0], tokens[:, 0]
            pool.scores[images, 0] += values
            pool.lengths[images, 0] = torch.where(values > DEAD, length, 0)
            pool.tokens[images, 0, length - 1] = last
            active = (~rules.ended(last) & (values > DEAD)).nonzero().squeeze(1)
            if len(active) < len(images):
                images, last = images[active], last[active]
                if not len(images):
                    break
                state = state.select(active)
        return pool.result()
