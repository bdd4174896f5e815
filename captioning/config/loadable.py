"""The mark of classes and functions that a run folder's config may build.

A run folder may come from anybody, so its ``config.yaml`` may name only objects with this mark: it
reads data or computes, and writes at most a cache that it can make again. Code that starts
programs, calls servers, loads executable objects or overwrites files has no mark.
"""

from __future__ import annotations

from typing import Any, TypeVar

PartT = TypeVar("PartT")
MARK = "may_be_named_by_run_folders"


def loadable(part: PartT) -> PartT:
    """Let run folders name a class with all that derive from it, or a function; a decorator.

    A class method is marked below ``@classmethod``; its class alone does not make it one.
    """
    setattr(part, MARK, True)
    return part


def is_loadable(found: Any) -> bool:
    """Whether the object that a name refers to is marked."""
    if isinstance(found, type):
        return bool(getattr(found, MARK, False))
    function = getattr(found, "__func__", found)  # of a class method
    return bool(getattr(function, "__dict__", {}).get(MARK, False))
