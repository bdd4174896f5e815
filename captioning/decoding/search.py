"""What a search is: its settings, and a call that finds captions of several images at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Self

from captioning.decoding.level_pool import ConstrainedResult
from captioning.decoding.settings import SearchRequest, SearchSettings
from captioning.decoding.state import SearchResult
from captioning.interfaces import AbstractDecoderState, AbstractStepper
from captioning.ranges import ArgumentsOf


@dataclass(frozen=True, kw_only=True)
class AbstractSearch(ABC):
    """A search with its settings; it may add a few fields of its own.

    Attributes:
        settings: those that all searches share.
        unused: names of the settings that this search does not read.
        takes_machines: whether it reads the machines of a request.

    Raises:
        ValueError: a setting that this search does not read differs from its default.
    """

    settings: SearchSettings
    unused: ClassVar[tuple[str, ...]] = ()
    takes_machines: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in sorted(self.settings.changed() & {*self.unused}):
            raise ValueError(
                f"{type(self).__name__} does not use {name}: got {getattr(self.settings, name)!r}; "
                "leave it out, or choose another search"
            )

    @classmethod
    def with_settings(
        cls, **values: Annotated[Any, ArgumentsOf(SearchSettings), ArgumentsOf(Self)]
    ) -> Self:
        """The search from one flat set of values: shared settings and its own arguments.

        Raises:
            ValueError: a value out of its range.
            TypeError: neither a setting nor an argument of this search.
        """
        shared = {field.name for field in fields(SearchSettings)} & values.keys()
        own_arguments = {name: value for name, value in values.items() if name not in shared}
        return cls(
            settings=SearchSettings(**{name: values[name] for name in shared}), **own_arguments
        )

    def changed(self, **settings: Any) -> Self:
        """The same search with other values of some shared settings."""
        return replace(self, settings=replace(self.settings, **settings))

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
