"""Pausing Python's cyclic garbage collector while many long-lived records are made."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic collection inside the block; usable as a decorator.

    Records hold no cycles, yet each collection walks all of them again, which took half of the time
    of reading COCO.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


MANY = 500_000  # objects that are worth a word with the collector


@contextmanager
def lasting_records() -> Iterator[None]:
    """Many records made inside are left out of all later collections, too.

    These would walk them again and again, and write to their memory, which loader processes then no
    longer share. What an earlier block froze is collected first if nothing needs it any more.
    """
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
    with collector_paused():
        yield
        if gc.get_count()[0] > MANY:
            gc.freeze()
            # Python collects what is left as it ends; of what stays, extensions print a list.
            atexit.unregister(gc.unfreeze)
            atexit.register(gc.unfreeze)
