"""Pictures for the training of generators: square tensors in [-1, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import ImageOps
from torch import Tensor

from captioning.data.roster import Roster
from captioning.vision.photos import load_rgb


def photo_paths(roster: Roster) -> list[Path]:
    """Photos of a roster, each once, in its order."""
    return [roster.samples[rows[0]].image_path for rows in roster.rows_by_image.values()]


def load_pictures(paths: Sequence[Path], *, size: int) -> Tensor:
    """Photos, scaled and cropped to squares around their middle.

    Returns:
        ``(B, 3, size, size) float32`` in [-1, 1].

    Raises:
        FileNotFoundError, ValueError: see `load_rgb`.
    """
    return as_pictures([load_square(path, size=size) for path in paths])


def load_square(path: Path, *, size: int) -> np.ndarray:
    """A photo of `load_pictures`: ``(size, size, 3) uint8``."""
    return np.asarray(ImageOps.fit(load_rgb(path), (size, size)))


def as_pictures(squares: Sequence[np.ndarray]) -> Tensor:
    """What `load_pictures` makes of photos that `load_square` has read."""
    return torch.from_numpy(np.stack(squares)).permute(0, 3, 1, 2).float() / 127.5 - 1
