"""Search for models with latent variables: sample latents, return the best caption of each.

`LatentSearch` runs a normal beam search per sample of the latents. `PublishedLatentSearch` copies
the code of COS-CVAE's authors, in which hypotheses never end.
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
    """Sample latents several times per image, and find the most probable caption of each sample.

    An image's samples depend only on ``seed`` and its key, and the first samples do not depend on
    the number of samples. ``num_captions`` is the number of samples; ``temperature`` scales the
    latents: 1 as in training, 0 for their means. The other settings apply to the beam search.

    Captions are returned in the order of their latent samples, and best first within a sample;
    captions of different samples may be equal. Scores are those of beam search: the
    log-probability given the latents, ``-inf`` if a sample has no caption.

    Attributes:
        at_once: latent samples per image searched together, at least 1; fewer need less memory.
        captions_per_draw: captions returned per latent sample, at most ``beam_size``. COS-CVAE's
            authors return both captions of a beam of 2, so 100 samples give 200 captions.
        distinct: return the best caption of each beam that no earlier sample gave, if possible.
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
            problem = "needs one caption per latent sample"
            raise SettingError("distinct", problem, "set ", Setting("captions_per_draw", "1"))

    @property
    def captions_per_image(self) -> int:
        """Number of captions over all latent samples of an image."""
        return self.settings.num_captions * self.captions_per_draw

    def check_model(self, model: type[AbstractStepper]) -> None:
        """Raise an error if a model has no latents; see `AbstractSearch`."""
        check_latents("latents", model)

    @torch.no_grad()
    def __call__(
        self, stepper: AbstractStepper, state: AbstractDecoderState, request: SearchRequest
    ) -> SearchResult:
        """Return the captions of each latent sample of each image; see `AbstractSearch`."""
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
        """The beam search for each latent sample."""
        return BeamSearch(
            settings=replace(
                self.settings,
                num_captions=self.settings.beam_size if self.distinct else self.captions_per_draw,
                temperature=SearchSettings.temperature,
                seed=SearchSettings.seed,
            )
        )


def check_latents(name: str, model: type[AbstractStepper]) -> None:
    """Raise an error if a model has no latents to sample.

    Args:
        name: name of the search, for the message.
        model: class of the model.

    Raises:
        ValueError: `AbstractStepper.draws_latents` is false.
    """
    if not model.draws_latents:
        raise ValueError(_needs_latents(name, model.__name__))


def _needs_latents(name: str, got: str) -> str:
    return (
        f"search={name} needs a model with latents, such as cos_cvae: got {got}; for other "
        "models choose search=sampling"
    )


def draws_of(
    name: str,
    state: AbstractDecoderState,
    request: SearchRequest,
    settings: SearchSettings,
    at_once: int,
) -> Iterator[tuple[int, AbstractDecoderState]]:
    """Yield states with sampled latents, and the number of samples per image in each state.

    Args:
        name: name of the search, for errors.
        settings: settings with number of samples, temperature and seed.
        at_once: maximum samples per image in one state.

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
    """Concatenate the captions of all samples of an image; failed searches come last."""
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
    """Return each block's best hypothesis that its image has not ``used`` yet, or the best.

    The chosen hypotheses are added to ``used``, which holds one set per image.
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
    """Return the chosen hypotheses ``(blocks, captions)``, concatenated per image."""
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
    """Beam search per latent sample that always runs all steps, as in visinf/cos-cvae.

    A hypothesis continues after its end token, and the tokens after it count in its score.
    Captions are cut at their first end token afterwards. No token is forbidden, not even the
    unknown word. All hypotheses of the beam become captions: ``num_captions`` samples give
    ``num_captions * beam_size`` captions per image, ordered by sample, best first. Hypotheses of
    a sample share its noise; the authors sample noise for each hypothesis.

    Attributes:
        max_words: maximum words of a caption; longer captions are cut. The authors' 18 leave two
            of 20 tokens for begin and end. ``max_length`` is the number of steps.
        at_once: latent samples per image searched together, at least 1.

    Raises:
        ValueError: forbidden ids other than the unknown word, which is ignored.
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
                "search=latents_published cannot forbid tokens: got forbidden_ids "
                f"{sorted({*self.settings.forbidden_ids})}, including the unknown word; leave "
                "forbidden_ids out, or choose search=latents"
            )

    @property
    def captions_per_image(self) -> int:
        """Number of captions in the beams of all latent samples of an image."""
        return self.settings.num_captions * self.settings.beam_size

    def check_model(self, model: type[AbstractStepper]) -> None:
        """Raise an error if a model has no latents; see `AbstractSearch`."""
        check_latents("latents_published", model)

    @torch.no_grad()
    def __call__(
        self, stepper: AbstractStepper, state: AbstractDecoderState, request: SearchRequest
    ) -> SearchResult:
        """Return the captions of each latent sample of each image; see `AbstractSearch`."""
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
        """Return tokens ``(blocks, K, T)`` and summed log-probabilities, best first."""
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
        """Cut captions after their first end token, or after ``max_words``."""
        most = self.settings.max_length - 1 if self.settings.must_end else self.max_words
        tokens = tokens[:, :, : min(most, self.max_words)]
        ends = (tokens == request.eos_id).long()
        exist = ends.cumsum(2) - ends == 0
        return SearchResult(
            tokens=tokens.masked_fill(~exist, request.pad_id),
            scores=scores,
            lengths=exist.sum(2),
        )
