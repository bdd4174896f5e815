"""Which photos of a set a reader refuses for their form: those of extreme form are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from captioning.vision.photo_keys import NUM_THREADS
from captioning.vision.photos import photo_sizes

Size = tuple[int, int]
# Widest, tallest, smallest, largest. Processors bound the sides, their ratio and the number of
# pixels, so that a form between those that pass passes, too.
ORDERS: tuple[Callable[[Size], float], ...] = (
    lambda size: size[0] / size[1],
    lambda size: -size[0] / size[1],
    lambda size: -min(size),
    lambda size: size[0] * size[1],
)
MARGIN = 2  # forms of an order that must pass before the others are taken to pass


def refused_photos(paths: Iterable[Path], problem: Callable[[Path], str]) -> dict[Path, str]:
    """Photos that a reader refuses, with its reasons.

    Sizes are read from the files' headers. Of each form one photo is tried, beginning with the most
    extreme ones of each order, until some pass. A photo whose header cannot be read is tried, too.

    Args:
        paths: of photos; repeats are looked at once.
        problem: why a photo cannot be read; empty if it can.
    """
    unique = list(dict.fromkeys(paths))
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        sizes = list(pool.map(_size, unique))
    forms: dict[Size, list[Path]] = {}
    refused: dict[Path, str] = {}
    for path, size in zip(unique, sizes, strict=True):
        if size is not None:
            forms.setdefault(size, []).append(path)
        elif reason := problem(path):
            refused[path] = reason
    reasons: dict[Size, str] = {}
    for order in ORDERS:
        passed = 0
        for size in sorted(forms, key=order, reverse=True):
            if size not in reasons:
                reasons[size] = problem(forms[size][0])
            passed += not reasons[size]
            if passed == MARGIN:
                break
    for size, reason in reasons.items():
        if reason:
            refused |= dict.fromkeys(forms[size], reason)
    return refused


def _size(path: Path) -> Size | None:
    """Width and height as the photo is shown; None where its header cannot be read."""
    try:
        return photo_sizes(path)[1]
    except (OSError, ValueError):
        return None
