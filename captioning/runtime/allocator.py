"""What glibc's allocator does with memory that tensors have freed."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import sys
from collections.abc import Callable

# Numbers of settings in glibc's malloc.h.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
LARGEST_KEPT = 2**30  # bytes of a tensor; larger ones go back to the system
LARGEST_KEPT_BY_OLDER = 2**25  # older versions of glibc refuse more
NEVER = -1
BETWEEN = 20  # steps
USERS_OWN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


class _Kept:
    """How memory that is kept for this process is given back, and the steps taken."""

    give_back: Callable[[int], int] | None = None
    steps = itertools.count(1)


def keep_freed_memory() -> None:
    """Let this process keep memory that is freed, for the tensors of the next step.

    By itself glibc gives the memory of large tensors back to the system, which clears it page by
    page when the next step takes it: a tenth of a training step on a processor. Memory
    that other libraries' allocators hold, and a user's own settings of glibc's, stay as they are.
    """
    set_by_user = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform != "linux" or set_by_user or any(name in os.environ for name in USERS_OWN):
        return
    with contextlib.suppress(AttributeError):  # a C library without it, such as musl
        library = ctypes.CDLL(None)
        set_option = library.mallopt
        sizes = (LARGEST_KEPT, LARGEST_KEPT_BY_OLDER)
        # Alone the second setting would be worse than none: it stops glibc from raising the first.
        if any(set_option(MMAP_THRESHOLD, size) for size in sizes):
            set_option(TRIM_THRESHOLD, NEVER)
            _Kept.give_back = library.malloc_trim


def step_ended() -> None:
    """Give what is free back to the system, once in `BETWEEN` steps, where it is kept at all.

    Batches of differing lengths leave holes in which later tensors do not fit, so that memory would
    grow for as long as training goes on.
    """
    if next(_Kept.steps) % BETWEEN == 0 and _Kept.give_back is not None:
        _Kept.give_back(0)
