"""Decorator for classes and functions that a run folder's config may build.

A run folder may be untrusted, so its ``config.yaml`` may name only marked objects. A marked
object reads data or computes, and writes at most a cache that it can recreate. Code that starts
programs, calls servers, loads executable objects or overwrites files is not marked.
"""

from __future__ import annotations

from typing import Any, TypeVar

PartT = TypeVar("PartT")
MARK = "may_be_named_by_run_folders"


def loadable(part: PartT) -> PartT:
    """Mark a function, or a class and its subclasses, as allowed in run folders; a decorator.

    Put it below ``@classmethod`` to mark a class method; marking the class is not enough.
    """
    setattr(part, MARK, True)
    return part


def is_loadable(found: Any) -> bool:
    """Whether an object is marked with `loadable`."""
    if isinstance(found, type):
        return bool(getattr(found, MARK, False))
    function = getattr(found, "__func__", found)  # of a class method
    return bool(getattr(function, "__dict__", {}).get(MARK, False))
