"""Standard normal numbers that depend on a key alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def keyed_noise(keys: Sequence[tuple[int, ...]], lengths: Sequence[int], size: int) -> Tensor:
    """Standard normal numbers of sequences, each from its own generator.

    So neither the batch, nor its order, nor its padding changes the numbers of a sequence. They are
    drawn step by step: sequences of one key begin alike, whatever their lengths.

    Args:
        keys: of B sequences; numbers of at least 0 each, such as (seed, row, updates).
        lengths: steps of each.
        size: numbers a step.

    Returns:
        ``(B, T, size) float32`` on the CPU, 0 after a sequence's end.
    """
    noise = np.zeros((len(keys), max(lengths), size), dtype=np.float32)
    for place, (key, length) in enumerate(zip(keys, lengths, strict=True)):
        np.random.default_rng(key).standard_normal(out=noise[place, :length], dtype=np.float32)
    return torch.from_numpy(noise)


def key_of(name: int | str) -> int:
    """A name, such as an image id, as a number."""
    return int.from_bytes(name.encode()) if isinstance(name, str) else int(name)
