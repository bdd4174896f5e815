"""Captions of models that draw latents first: the best caption of each draw.

`LatentSearch` searches each draw as usual; `PublishedLatentSearch` does as COS-CVAE's authors do,
whose hypotheses never end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional

from captioning.config.ranges import PositiveInt
from captioning.config.setting_error import Setting, SettingError
from captioning.decoding.beam import BeamSearch
from captioning.decoding.search import AbstractSearch
from captioning.decoding.settings import SearchRequest, SearchSettings, check_integer
from captioning.decoding.state import DEAD, SearchResult, take_rows
from captioning.interfaces import AbstractDecoderState, AbstractLatentState, AbstractStepper


@final
@dataclass(frozen=True, kw_only=True)
class LatentSearch(AbstractSearch):
    """Draw latents several times an image, and find the most probable caption of each draw.

    The draws of an image depend on ``seed`` and its key alone, and the first draws do not depend on
    the number of draws. ``num_captions`` is the number of draws; ``temperature`` scales the
    latents: 1 as the model was trained, 0 for their means. The other settings apply to the beam
    search of each draw.

    Captions are returned in the order in which their latents were drawn; within a draw the best
    comes first; captions of some draws may be equal. Scores are computed as in beam search: the
    log-probability given the latents, ``-inf`` where a draw has no caption.

    Attributes:
        at_once: draws of an image that are searched together, at least 1; fewer take less memory.
        captions_per_draw: the best captions of each draw's beam, at most ``beam_size``; COS-CVAE's
            authors take both of a beam of 2, so that 100 draws give 200 captions.
        distinct: take of each draw the best caption of its beam that no earlier draw gave, if there
            is one, so that few draws repeat a caption.
    """

    at_once: PositiveInt = 20
    captions_per_draw: PositiveInt = 1
    distinct: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("at_once", self.at_once, minimum=1)
        check_integer("captions_per_draw", self.captions_per_draw, minimum=1)
        if self.captions_per_draw > self.settings.beam_size:
            raise ValueError(
                f"captions_per_draw must be at most beam_size={self.settings.beam_size}: got "
                f"{self.captions_per_draw}"
            )
        if self.distinct and self.captions_per_draw > 1:
            problem = "takes one caption of each draw"
            raise SettingError("distinct", problem, "set ", Setting("captions_per_draw", "1"))

    @property
    def captions_per_image(self) -> int:
        """The results of all draws."""
        return self.settings.num_captions * self.captions_per_draw

    def check_model(self, model: type[AbstractStepper]) -> None:
        """Refuse a model without latents; see `AbstractSearch`."""
        check_latents("latents", model)

    @torch.no_grad()
    def __call__(
        self, stepper: AbstractStepper, state: AbstractDecoderState, request: SearchRequest
    ) -> SearchResult:
        """The captions of each draw of each image; see `AbstractSearch`."""
        beam, settings, num_images = self._beam_search(), self.settings, request.num_images
        results: list[SearchResult] = []
        used: list[set[tuple[int, ...]]] = [set() for _ in range(num_images)]
        for count, drawn in draws_of("latents", state, request, settings, self.at_once):
            blocks = replace(request, num_images=num_images * count, image_ids=None)
            result = beam(stepper, drawn, blocks)
            chosen = torch.arange(self.captions_per_draw, device=result.tokens.device)
            chosen = chosen.expand(blocks.num_images, -1)
            if self.distinct:
                chosen = _first_unused(result, used).to(chosen)[:, None]
            results.append(_by_image(result, chosen, num_images))
        return _joined(results, request.pad_id)

    def _beam_search(self) -> BeamSearch:
        """The search of each draw."""
        return BeamSearch(
            settings=replace(
                self.settings,
                num_captions=self.settings.beam_size if self.distinct else self.captions_per_draw,
                temperature=SearchSettings.temperature,
                seed=SearchSettings.seed,
            )
        )


def check_latents(name: str, model: type[AbstractStepper]) -> None:
    """Refuse a model that has no latents to draw.

    Args:
        name: name of the search, for the error.
        model: its class.

    Raises:
        ValueError: `AbstractStepper.draws_latents` is false.
    """
    if not model.draws_latents:
        raise ValueError(_needs_latents(name, model.__name__))


def _needs_latents(name: str, got: str) -> str:
    return (
        f"search={name} needs a model with latents, such as cos_cvae: got {got}; sample words "
        "with search=sampling instead"
    )


def draws_of(
    name: str,
    state: AbstractDecoderState,
    request: SearchRequest,
    settings: SearchSettings,
    at_once: int,
) -> Iterator[tuple[int, AbstractDecoderState]]:
    """States with drawn latents, and of how many draws an image each is.

    Args:
        name: name of the search, for errors.
        settings: settings of ``num_captions`` draws, with temperature and seed.
        at_once: draws of an image in one state, at most.

    Raises:
        ValueError: a model without latents.
    """
    if not isinstance(state, AbstractLatentState):
        raise ValueError(_needs_latents(name, type(state).__name__))
    options = {"temperature": settings.temperature, "seed": settings.seed}
    for first in range(0, settings.num_captions, at_once):
        draws = range(first, min(first + at_once, settings.num_captions))
        yield len(draws), state.drawn(keys=request.keys, draws=draws, **options)


def _joined(results: Sequence[SearchResult], pad_id: int) -> SearchResult:
    """Captions of all draws, side by side; draws whose search failed come last."""
    longest = max(result.tokens.shape[2] for result in results)
    tokens = [
        functional.pad(result.tokens, (0, longest - result.tokens.shape[2]), value=pad_id)
        for result in results
    ]
    scores = torch.cat([result.scores for result in results], 1)
    order = (scores == DEAD).to(torch.int8).sort(dim=1, stable=True).indices
    return SearchResult(
        tokens=take_rows(torch.cat(tokens, 1), order),
        scores=scores.gather(1, order),
        lengths=torch.cat([result.lengths for result in results], 1).gather(1, order),
    )


def _first_unused(result: SearchResult, used: Sequence[set[tuple[int, ...]]]) -> Tensor:
    """The best hypothesis of each block that its image has not ``used`` yet, else the best.

    The chosen ones are added to ``used``, which has a set an image.
    """
    tokens, lengths = result.tokens.tolist(), result.lengths.tolist()
    exists = (result.scores != DEAD).tolist()
    draws, chosen = len(tokens) // len(used), []
    for block in range(len(tokens)):
        captions = [
            tuple(words[:length])
            for words, length, is_hypothesis in zip(
                tokens[block], lengths[block], exists[block], strict=True
            )
            if is_hypothesis
        ]
        used_by_image = used[block // draws]
        chosen.append(
            next((n for n, caption in enumerate(captions) if caption not in used_by_image), 0)
        )
        used_by_image.update(captions[chosen[-1] : chosen[-1] + 1])
    return torch.tensor(chosen)


def _by_image(result: SearchResult, chosen: Tensor, num_images: int) -> SearchResult:
    """The chosen hypotheses ``(blocks, captions)`` of an image's draws, side by side."""
    rows = torch.arange(len(chosen), device=chosen.device)[:, None]
    shape = (num_images, -1)
    return SearchResult(
        tokens=result.tokens[rows, chosen].reshape(*shape, result.tokens.shape[-1]),
        scores=result.scores[rows, chosen].reshape(shape),
        lengths=result.lengths[rows, chosen].reshape(shape),
    )


@final
@dataclass(frozen=True, kw_only=True)
class PublishedLatentSearch(AbstractSearch):
    """A beam for each draw of the latents that always makes all its steps.

    As in visinf/cos-cvae: a hypothesis continues after its end token, and the tokens after it count
    in its score. Captions are cut at their first end afterwards. No token is forbidden, not even
    the unknown word. All hypotheses of the beam are captions: ``num_captions`` draws give
    ``num_captions * beam_size`` captions an image, draw by draw, the best of a draw first. The
    hypotheses of a draw share its noise; the authors draw noise for each hypothesis.

    Attributes:
        max_words: maximum words of a caption, after which it is cut; the authors' 18 leave two
            tokens of 20 for begin and end. ``max_length`` is the number of steps.
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
