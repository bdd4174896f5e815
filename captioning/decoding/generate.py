"""Search with a model's own library: ``generate`` of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, final, runtime_checkable

import torch
from torch import Tensor

from captioning.config.ranges import PositiveInt, Share
from captioning.config.setting_error import Setting, SettingError
from captioning.decoding.search import AbstractSearch
from captioning.decoding.settings import SearchRequest
from captioning.decoding.state import SearchResult
from captioning.interfaces import AbstractDecoderState, AbstractStepper

_DRAWS = (Setting("sample", "true"), " ", Setting("beam_size", "1"))  # of words at random


@runtime_checkable
class Generates(Protocol):
    """Protocol of a model with its own search."""

    def generate_tokens(
        self, state: Any, *, end_ids: Sequence[int], **settings: Any
    ) -> tuple[Tensor, Tensor]:
        """Return tokens ``(I * M, T)`` of captions, grouped by image, and ``(I * M,)`` scores.

        Args:
            state: the memory before the first token.
            end_ids: tokens that end a caption.
            **settings: arguments of transformers' ``generate``.
        """
        ...


@final
@dataclass(frozen=True, kw_only=True)
class GenerateSearch(AbstractSearch):
    """Search of transformers: beam search, greedy search or sampling, with its own rules.

    ``exact=False`` stops beams early as transformers does by default; ``exact=True`` sets
    ``early_stopping="never"``. Samples depend on the seed and on the batch: each batch sets
    its own seed, and its images share the random numbers.

    Attributes:
        sample: sample tokens at random.
        top_k: sample from the k most probable tokens; None: from all.
        top_p: sample from the most probable tokens with this total probability, in (0, 1].
    """

    unused: ClassVar[tuple[str, ...]] = (
        "per_node_beam",
        "normalisation",
        "count_prompt",
        "special_tokens",
    )
    steps: ClassVar[bool] = False

    sample: bool = False
    top_k: PositiveInt | None = None
    top_p: Share | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_draws()
        settings = self.settings
        draws_alone = self.sample and settings.beam_size == 1
        if settings.num_captions > settings.beam_size and not draws_alone:
            raise SettingError(
                "num_captions",
                f"must be at most beam_size: got {settings.num_captions} > {settings.beam_size}",
                "raise beam_size, or set ",
                *_DRAWS,
            )
        if self.sample and settings.temperature <= 0:
            raise SettingError(
                "temperature",
                f"must be above 0 for sampling: got {settings.temperature}",
                "set ",
                Setting("sample", "false"),
                " and omit temperature to take the most probable words",
            )

    def check_model(self, model: type[AbstractStepper]) -> None:
        """Raise an error if a model has no search of its own; see `AbstractSearch`."""
        if not issubclass(model, Generates):
            raise ValueError(
                f"search=generate needs a model with its own search (model=vlm): got "
                f"{model.__name__}; choose search=beam"
            )

    def _check_draws(self) -> None:
        """Raise an error if sampling settings are set without sampling; a seed is allowed."""
        draws = {
            "temperature": None if self.settings.temperature == 1 else self.settings.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
        }
        for name, value in draws.items():
            if value is not None and not self.sample:
                problem = f"applies to random sampling, which is off: got {value}"
                raise SettingError(name, problem, "set ", *_DRAWS, ", or leave it out")

    @torch.no_grad()
    def __call__(
        self, stepper: AbstractStepper, state: AbstractDecoderState, request: SearchRequest
    ) -> SearchResult:
        """Return captions of each image; see `AbstractSearch`.

        Raises:
            ValueError: the model has no search of its own.
        """
        self.check_model(type(stepper))
        model: Any = stepper
        devices = [request.device] if torch.device(request.device).type == "cuda" else []
        with torch.random.fork_rng(devices=devices, enabled=self.sample):
            if self.sample:
                torch.manual_seed(self.settings.seed)  # noqa: TID251 - transformers takes no generator
            tokens, scores = model.generate_tokens(state, **self._options(request))
        return _result(tokens, scores, self.settings.num_captions, request)

    def _options(self, request: SearchRequest) -> dict[str, Any]:
        settings = self.settings
        options: dict[str, Any] = {
            "max_new_tokens": settings.max_length,
            # transformers counts the length before the end token; this project includes the end.
            "min_new_tokens": max(0, settings.min_length - 1) or None,
            "num_beams": settings.beam_size,
            "num_return_sequences": settings.num_captions,
            "no_repeat_ngram_size": settings.no_repeat_ngram_size,
            "repetition_penalty": settings.repetition_penalty,
            "do_sample": self.sample,
            "end_ids": [*request.ends, *settings.end_ids],
            "pad_token_id": request.pad_id,
        }
        if settings.must_end:
            options["forced_eos_token_id"] = request.eos_id
        if settings.beam_size > 1:
            options["length_penalty"] = settings.length_penalty
            options["early_stopping"] = "never" if settings.exact else False
        if self.sample:
            options["temperature"] = settings.temperature
            options["top_k"] = self.top_k or 0
            options["top_p"] = self.top_p or 1.0
        if settings.forbidden_ids:
            options["suppress_tokens"] = sorted({*settings.forbidden_ids} - {*request.ends})
        return options


def _result(
    tokens: Tensor, scores: Tensor, num_captions: int, request: SearchRequest
) -> SearchResult:
    """Cut each caption after its end token."""
    ends = torch.isin(tokens, torch.tensor(request.ends, device=tokens.device)).long()
    exist = ends.cumsum(1) - ends == 0
    shape = (request.num_images, num_captions)
    return SearchResult(
        tokens=tokens.masked_fill(~exist, request.pad_id).view(*shape, -1),
        scores=scores.float().view(shape),
        lengths=exist.sum(1).view(shape),
    )
