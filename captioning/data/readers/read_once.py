"""Annotation files that several splits share are read once."""

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
    """Inside, functions marked by `read_once` read once for the same arguments."""
    outer = _kept.get()
    token = _kept.set({} if outer is None else outer)
    try:
        yield
    finally:
        _kept.reset(token)


def read_once(function: Callable[..., Value]) -> Callable[..., Value]:
    """Marks a function of files, whose result nobody may change, see `files_kept`."""

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
