"""The interface of a search: its settings, and a call that finds captions of several images."""

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
    """A search with its settings; it may add a few fields.

    Attributes:
        settings: those that all searches share.
        unused: names of the settings that this search does not read.
        takes_machines: whether it reads the machines of a request.
        needs_machines: whether it finds nothing without them.
        best_first: whether it gives the captions of an image by falling score.
        steps: whether it reads tokens by `AbstractStepper.step`, so that it can continue a text.

    Raises:
        ValueError: a setting that this search does not read differs from its default.
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
        """The search from one flat set of values: shared settings and its own arguments.

        Args:
            no_repeat_ngram: ``no_repeat_ngram_size`` under its former name, as older run folders
                have it.
            **values: settings and arguments.

        Raises:
            ValueError: a value out of its range.
            TypeError: neither a setting nor an argument of this search.
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
        """Number of captions that it returns of an image, at most."""
        return self.settings.num_captions

    def changed(self, **settings: Any) -> Self:
        """The same search with other values of some shared settings."""
        return replace(self, settings=replace(self.settings, **settings))

    def check_model(self, model: type[AbstractStepper]) -> None:  # noqa: B027  # most take any
        """Refuse a model that this search cannot work with, before its first caption.

        Args:
            model: its class.

        Raises:
            ValueError: the model lacks what the search needs.
        """

    def counting_captions(self, num_read: int) -> Self:
        """The same search with lengths that count the caption's tokens alone.

        Args:
            num_read: begin token and tokens of the prompt.

        Raises:
            ValueError: no token is left for a caption, or none can end.
        """
        settings = self.settings
        if not settings.count_prompt:
            return self
        if settings.max_length <= num_read:
            raise ValueError(
                f"search.max_length={settings.max_length} counts the {num_read} tokens of begin "
                "and prompt, so that no token is left for a caption; raise it"
            )
        if settings.min_length >= settings.max_length:
            raise ValueError(
                f"search.min_length={settings.min_length} with search.max_length="
                f"{settings.max_length} and count_prompt lets no caption end; lower the first"
            )
        return self.changed(
            max_length=settings.max_length - num_read,
            # Theirs is the length before the end token, ours counts it.
            min_length=max(0, settings.min_length - num_read + 1),
            count_prompt=False,
        )

    @abstractmethod
    def __call__(
        self, stepper: AbstractStepper, state: AbstractDecoderState, request: SearchRequest
    ) -> SearchResult | ConstrainedResult:
        """Find captions.

        Args:
            stepper: the model.
            state: its memory of ``request.num_images`` hypotheses, one an image.
            request: the images.

        Returns:
            ``settings.num_captions`` captions of each image, best first, or in the order in which
            they were drawn.

        Raises:
            ValueError: settings that the model cannot meet, or NaN log-probabilities.
        """
