"""Label maps of photos, made of their boxes, for the training of generators."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from captioning.data.roster import Roster
from captioning.types import Region
from captioning.vision.photos import load_rgb

BACKGROUND = 0.1
"""Weight of cells without an object, which are most cells."""


def label_names(roster: Roster) -> list[str]:
    """Labels of all boxes, each once, sorted; none where a data set has no boxes."""
    return sorted({region.label for sample in roster.samples for region in sample.regions})


def label_maps(roster: Roster, names: Sequence[str], *, cells: int) -> Tensor:
    """The label in each cell of each photo: that of the smallest box that touches it.

    Only the photo's middle square is used, as by `load_pictures`.

    Args:
        roster: photos, with boxes or without; those with boxes are opened for their size.
        names: the labels.
        cells: rows and columns that the square is divided into.

    Returns:
        ``(I, cells, cells) int64``: 0 for background, else 1 more than the label's index.

    Raises:
        FileNotFoundError, ValueError: see `load_rgb`.
        KeyError: a label is not among the names.
    """
    numbers = {name: number for number, name in enumerate(names, start=1)}
    maps = torch.zeros(len(roster.rows_by_image), cells, cells, dtype=torch.int64)
    for cells_of_photo, rows in zip(maps, roster.rows_by_image.values(), strict=True):
        sample = roster.samples[rows[0]]
        if not sample.regions:
            continue
        sides = load_rgb(sample.image_path).size
        for region in sorted(sample.regions, key=_area, reverse=True):
            across, down = (
                _span(region.box[axis], region.box[axis + 2], sides[axis], min(sides), cells)
                for axis in (0, 1)
            )
            cells_of_photo[down, across] = numbers[region.label]
    return maps


def _area(region: Region) -> float:
    left, top, right, bottom = region.box
    return (right - left) * (bottom - top)


def _span(start: float, end: float, side: int, square: int, cells: int) -> slice:
    """Cells of the middle square that a span of pixels touches."""
    first, last = ((value - (side - square) / 2) * cells / square for value in (start, end))
    return slice(max(0, math.floor(first)), max(0, math.ceil(last)))


def object_weights(maps: Tensor, weight: float) -> Tensor:
    """Weights of places in errors: of places with an object, against 1 for the others.

    Objects are a small part of a scene, and captions describe them.

    Args:
        maps: see `label_maps`.
        weight: of places with an object.

    Returns:
        ``(I, 1, cells, cells) float32``, of mean 1 over all.
    """
    weights = torch.where(maps > 0, weight, 1.0)[:, None]
    return weights / weights.mean()


class LabelReader(nn.Module):
    """Predicts labels from a network's maps; its loss gives the maps a meaning.

    Args:
        channels: of the maps.
        num_labels: without the background.
        width: of the hidden layer.
    """

    weights: Tensor

    def __init__(self, channels: int, num_labels: int, *, width: int = 96) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1), nn.SiLU(), nn.Conv2d(width, num_labels + 1, 1)
        )
        weights = torch.ones(num_labels + 1)
        weights[0] = BACKGROUND
        self.register_buffer("weights", weights, persistent=False)

    def loss(self, maps: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy of ``(B, channels, H, W)`` against ``(B, H, W) int64``."""
        return nn.functional.cross_entropy(self.layers(maps).float(), labels, self.weights)
