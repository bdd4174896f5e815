"""A plugin of the tests: what a call was given, as plain text."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from omegaconf import DictConfig, ListConfig


def shown(*args: Any, **kwargs: Any) -> list[Any]:
    """The arguments with their types."""
    return [*map(_plain, args), *sorted((key, _plain(value)) for key, value in kwargs.items())]


def _plain(value: Any) -> Any:
    kind = type(value).__name__
    if isinstance(value, DictConfig | dict):
        return kind, sorted((str(key), _plain(item)) for key, item in value.items())
    if isinstance(value, ListConfig | list | tuple):
        return kind, [_plain(item) for item in value]
    if isinstance(value, partial | Callable):
        return "partial", _plain(value(1))
    return kind, value
