"""Space on the disk for features."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path


def check_space(
    folder: Path, needed: int, num_photos: int, notify: Callable[[str], object]
) -> None:
    """Say how much space features will take, and refuse to begin where there is less.

    Args:
        folder: of the store.
        needed: bytes of the features; an eighth of a percent and 64 MiB are added for the index.
        num_photos: that they are of.
        notify: shows one line.

    Raises:
        OSError: not enough space.
    """
    needed += needed // 800 + 64 * 2**20
    free = shutil.disk_usage(folder).free
    need = f"features of {num_photos:,} photos need about {needed / 2**30:.2f} GiB"
    if needed > free:
        raise OSError(
            f"{folder}: {need}, free are {free / 2**30:.2f} GiB; free some space, or name a folder "
            "on another disk (CAPTIONING_CACHE for those that a run builds)"
        )
    notify(f"{need} in {folder}; free are {free / 2**30:.2f} GiB")
