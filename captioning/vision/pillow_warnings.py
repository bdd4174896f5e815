"""Pillow's warnings, ignored in several threads at once."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside: list[warnings.catch_warnings] = []  # once for each thread inside; all are the first one's


@contextmanager
def pillow_warnings_ignored() -> Iterator[None]:
    """Inside, nothing is warned of; filters are as before when the last thread has left.

    Python's own context keeps filters by process: of two threads that overlap, the one that leaves
    last would put back what the other one had set.
    """
    with _lock:
        if not _inside:
            context = warnings.catch_warnings()
            context.__enter__()
            warnings.simplefilter("ignore")
            _inside.append(context)
        else:
            _inside.append(_inside[0])
    try:
        yield
    finally:
        with _lock:
            context = _inside.pop()
            if not _inside:
                context.__exit__(None, None, None)
