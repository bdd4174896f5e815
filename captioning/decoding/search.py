"""Interface of all searches: settings, and a call that finds captions of several images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Self

from captioning.config.loadable import loadable
from captioning.config.ranges import ArgumentsOf, NonNegativeInt
from captioning.decoding.settings import SearchRequest, SearchSettings
from captioning.decoding.state import ConstrainedResult, SearchResult
from captioning.interfaces import AbstractDecoderState, AbstractStepper


@dataclass(frozen=True, kw_only=True)
class AbstractSearch(ABC):
    """Base class of searches; subclasses may add settings.

    Attributes:
        settings: settings shared by all searches.
        unused: names of the shared settings that this search ignores.
        takes_machines: whether the search uses the machines of a request.
        needs_machines: whether the search requires machines.
        best_first: whether the captions of an image are sorted by falling score.
        steps: whether the search uses `AbstractStepper.step`, so it can continue a given text.

    Raises:
        ValueError: a setting that this search ignores differs from its default.
    """

    settings: SearchSettings
    unused: ClassVar[tuple[str, ...]] = ()
    takes_machines: ClassVar[bool] = False
    needs_machines: ClassVar[bool] = False
    best_first: ClassVar[bool] = True
    steps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in sorted(self.settings.changed() & {*self.unused}):
            raise ValueError(
                f"{type(self).__name__} does not use {name}: got {getattr(self.settings, name)!r}; "
                "leave it out, or choose another search"
            )

    @classmethod
    @loadable
    def with_settings(
        cls,
        no_repeat_ngram: NonNegativeInt = 0,
        **values: Annotated[Any, ArgumentsOf(SearchSettings), ArgumentsOf(Self)],
    ) -> Self:
        """Build the search from a flat set of values: shared settings and its own arguments.

        Args:
            no_repeat_ngram: former name of ``no_repeat_ngram_size``, for older run folders.
            **values: shared settings and the search's own arguments.

        Raises:
            ValueError: a value out of range.
            TypeError: a name that is neither a setting nor an argument of this search.
        """
        if no_repeat_ngram:
            values["no_repeat_ngram_size"] = no_repeat_ngram
        shared = {field.name for field in fields(SearchSettings)} & values.keys()
        own_arguments = {name: value for name, value in values.items() if name not in shared}
        return cls(
            settings=SearchSettings(**{name: values[name] for name in shared}), **own_arguments
        )

    @property
    def captions_per_image(self) -> int:
        """Maximum number of captions that the search returns per image."""
        return self.settings.num_captions

    def changed(self, **settings: Any) -> Self:
        """Return the same search with other values of some shared settings."""
        return replace(self, settings=replace(self.settings, **settings))

    def check_model(self, model: type[AbstractStepper]) -> None:  # noqa: B027  # most take any
        """Raise an error, before the first caption, if this search cannot work with a model.

        Args:
            model: class of the model.

        Raises:
            ValueError: the model lacks a method that the search needs.
        """

    def counting_captions(self, num_read: int) -> Self:
        """Return the same search with length limits for the caption's tokens only.

        Args:
            num_read: number of tokens in begin token and prompt.

        Raises:
            ValueError: no token is left for a caption, or no caption can end.
        """
        settings = self.settings
        if not settings.count_prompt:
            return self
        if settings.max_length <= num_read:
            raise ValueError(
                f"search.max_length={settings.max_length} includes the {num_read} tokens of begin "
                "and prompt, so no token is left for a caption; raise search.max_length"
            )
        if settings.min_length >= settings.max_length:
            raise ValueError(
                f"search.min_length={settings.min_length}, search.max_length={settings.max_length} "
                "and count_prompt leave no caption that can end; lower search.min_length"
            )
        return self.changed(
            max_length=settings.max_length - num_read,
            # transformers counts the length before the end token; this project includes the end.
            min_length=max(0, settings.min_length - num_read + 1),
            count_prompt=False,
        )

    @abstractmethod
    def __call__(
        self, stepper: AbstractStepper, state: AbstractDecoderState, request: SearchRequest
    ) -> SearchResult | ConstrainedResult:
        """Find captions of several images.

        Args:
            stepper: the captioning model.
            state: the model's memory of ``request.num_images`` hypotheses, one per image.
            request: images and special tokens of the call.

        Returns:
            ``settings.num_captions`` captions per image, best first, or in sampling order.

        Raises:
            ValueError: settings that the model cannot meet, or NaN log-probabilities.
        """
