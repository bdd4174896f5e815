"""Captions of drawn latents as COS-CVAE's authors search for them: hypotheses never end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from captioning.config.ranges import PositiveInt
from captioning.decoding.latent_draws import check_latents, draws_of
from captioning.decoding.search import AbstractSearch
from captioning.decoding.settings import SearchRequest, check_integer
from captioning.decoding.state import SearchResult, take_rows
from captioning.interfaces import AbstractDecoderState, AbstractStepper


@final
@dataclass(frozen=True, kw_only=True)
class PublishedLatentSearch(AbstractSearch):
    """A beam for each draw of the latents that always makes all its steps.

    As in visinf/cos-cvae: a hypothesis goes on after its end token, and what follows counts in its
    score. Captions are cut at their first end afterwards. No token is forbidden, not even the
    unknown word. All hypotheses of the beam are captions: ``num_captions`` draws give
    ``num_captions * beam_size`` captions an image, draw by draw, the best of a draw first. The
    noise of a draw is shared by its hypotheses; the authors draw it for each anew.

    Attributes:
        max_words: of a caption, after which it is cut; the authors' 18 leave two tokens of 20 for
            begin and end. ``max_length`` is the number of steps.
        at_once: draws of an image that are searched together, at least 1.

    Raises:
        ValueError: forbidden ids beside that of the unknown word, which does not count.
    """

    unused: ClassVar[tuple[str, ...]] = (
        "min_length",
        "forbidden_words",
        "end_words",
        "end_ids",
        "no_repeat_ngram_size",
        "repetition_penalty",
        "count_prompt",
        "special_tokens",
        "length_penalty",
        "normalisation",
        "per_node_beam",
        "exact",
    )

    max_words: PositiveInt = 18
    at_once: PositiveInt = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("max_words", "at_once"):
            check_integer(name, getattr(self, name), minimum=1)
        # A captioner adds the unknown word to the forbidden ids of every search.
        if len({*self.settings.forbidden_ids}) > 1:
            raise ValueError(
                "search=latents_published forbids no token: got forbidden_ids "
                f"{sorted({*self.settings.forbidden_ids})}, the unknown word among them; leave "
                "forbidden_ids out, or choose search=latents"
            )

    @property
    def captions_per_image(self) -> int:
        """The beams of all draws."""
        return self.settings.num_captions * self.settings.beam_size

    def check_model(self, model: type[AbstractStepper]) -> None:
        """Refuse a model without latents; see `AbstractSearch`."""
        check_latents("latents_published", model)

    @torch.no_grad()
    def __call__(
        self, stepper: AbstractStepper, state: AbstractDecoderState, request: SearchRequest
    ) -> SearchResult:
        """The captions of each draw of each image; see `AbstractSearch`."""
        settings, shape = self.settings, (request.num_images, -1)
        all_tokens, all_scores = [], []
        draws = draws_of("latents_published", state, request, settings, self.at_once)
        for count, drawn in draws:
            tokens, scores = self._beams(stepper, drawn, count * request.num_images, request)
            all_tokens.append(tokens.view(*shape, settings.max_length))
            all_scores.append(scores.view(shape))
        return self._cut(torch.cat(all_tokens, 1), torch.cat(all_scores, 1), request)

    def _beams(
        self,
        stepper: AbstractStepper,
        state: AbstractDecoderState,
        num_blocks: int,
        request: SearchRequest,
    ) -> tuple[Tensor, Tensor]:
        """Tokens ``(blocks, K, T)`` and summed log-probabilities ``(blocks, K)``, best first."""
        size, length = self.settings.beam_size, self.settings.max_length
        tokens = torch.empty(num_blocks, 1, 0, dtype=torch.long, device=request.device)
        scores = torch.zeros(num_blocks, 1, device=request.device)
        last = tokens.new_full((num_blocks,), request.bos_id)
        for step in range(length):
            log_probs, state = stepper.step(last, state)
            width = scores.shape[1]
            values, words = log_probs.topk(size, dim=1)
            totals = (scores[:, :, None] + values.view(num_blocks, width, size)).flatten(1)
            scores, places = totals.topk(size, dim=1)
            parents, words = places // size, words.view(num_blocks, -1).gather(1, places)
            tokens = torch.cat([take_rows(tokens, parents), words[:, :, None]], 2)
            if step + 1 < length:
                rows = torch.arange(num_blocks, device=request.device)[:, None] * width + parents
                state, last = state.select(rows.flatten()), words.flatten()
        return tokens, scores

    def _cut(self, tokens: Tensor, scores: Tensor, request: SearchRequest) -> SearchResult:
        """Captions up to their first end token, or ``max_words``."""
        most = self.settings.max_length - 1 if self.settings.must_end else self.max_words
        tokens = tokens[:, :, : min(most, self.max_words)]
        ends = (tokens == request.eos_id).long()
        exist = ends.cumsum(2) - ends == 0
        return SearchResult(
            tokens=tokens.masked_fill(~exist, request.pad_id),
            scores=scores,
            lengths=exist.sum(2),
        )
