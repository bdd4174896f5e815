"""What glibc's allocator does with memory that tensors have freed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

# Numbers of settings in glibc's malloc.h.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
LARGEST_KEPT = 2**30  # bytes of a tensor; larger ones go back to the system
LARGEST_KEPT_BY_OLDER = 2**25  # older versions of glibc refuse more
NEVER = -1
USERS_OWN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


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
        set_option = ctypes.CDLL(None).mallopt
        sizes = (LARGEST_KEPT, LARGEST_KEPT_BY_OLDER)
        # Alone the second setting would be worse than none: it stops glibc from raising the first.
        if any(set_option(MMAP_THRESHOLD, size) for size in sizes):
            set_option(TRIM_THRESHOLD, NEVER)
