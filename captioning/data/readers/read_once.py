"""Read annotation files that several splits share only once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Value = TypeVar("Value")
_kept: ContextVar[dict[Any, Any] | None] = ContextVar("kept", default=None)


@contextmanager
def files_kept() -> Iterator[None]:
    """Cache the results of functions marked by `read_once` within the context."""
    outer = _kept.get()
    token = _kept.set({} if outer is None else outer)
    try:
        yield
    finally:
        _kept.reset(token)


def read_once(function: Callable[..., Value]) -> Callable[..., Value]:
    """Mark a file-reading function for `files_kept`; its result must not be changed."""

    @functools.wraps(function)
    def read(*arguments: Any) -> Value:
        kept = _kept.get()
        if kept is None:
            return function(*arguments)
        key = (function, *arguments)
        if key not in kept:
            kept[key] = function(*arguments)
        return kept[key]

    return read
