"""What every format of features gives: a record an image, checked alike."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

MAX_ROWS = 4096
FEATURES, BOXES = ("features", "feat", "x"), ("boxes", "bbox", "box")
SHARES = ("norm_bb", "norm_boxes")
WIDTH, HEIGHT = ("image_w", "img_w", "width", "w"), ("image_h", "img_h", "height", "h")
COUNT = ("num_boxes", "num_bbox")
KNOWN = {*FEATURES, *BOXES, *SHARES, *WIDTH, *HEIGHT, *COUNT}
# What numpy, zipfile and h5py raise over damaged files.
DAMAGE = (
    *(OSError, EOFError, KeyError, ValueError, TypeError, RuntimeError, AttributeError),
    *(zipfile.BadZipFile, zlib.error, SyntaxError, MemoryError, OverflowError, tokenize.TokenError),
)

Wanted = Callable[[str, str], bool]
"""Whether an image's record is to be read, by its id and its place in the source; an image that the
source has twice is an error here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Features of one image, as the source has them.

    Attributes:
        image_id: its name in the source.
        where: its place there, for messages.
        features: ``(n, D)`` numbers.
        boxes: ``(n, 4)``: x1, y1, x2, y2 in pixels, or in shares of the sides; None if unknown.
        are_shares: the boxes are shares.
        size: width and height of the photo in pixels, if known.
    """

    image_id: str
    where: str
    features: np.ndarray
    boxes: np.ndarray | None = None
    are_shares: bool = False
    size: tuple[float, float] | None = None


class AbstractSource(ABC):
    """A file or folder of features.

    Attributes:
        name: for messages.
    """

    name: str

    @abstractmethod
    def count(self) -> int:
        """Number of images, roughly where counting would mean reading all."""

    @abstractmethod
    def records(self, wanted: Wanted) -> Iterator[Record]:
        """The records of images that are wanted, in the source's order.

        Raises:
            ValueError: damaged content; the message names the place.
        """


def record_of(image_id: str, where: str, arrays: Mapping[str, Any]) -> Record:
    """A record from the arrays of one image, by the names that are in use for them.

    Features may be one vector (of the whole photo), ``(n, D)``, ``(D, n)`` where ``n`` boxes say
    so, or a grid ``(h, w, D)``, whose cells are the boxes.

    Raises:
        ValueError: no features, or arrays that do not fit each other.
    """
    name = first_of(arrays, FEATURES)
    if name is None:
        raise ValueError(f"{where}: has none of {', '.join(FEATURES)}: got {_listed(arrays)}")
    features = numbers(arrays[name], where)
    if not features.ndim:
        raise ValueError(f"{where}: {name} must be an array of features: got a single number")
    boxes, are_shares = _boxes(arrays, where)
    if boxes is None and features.ndim in (1, 3):
        boxes, are_shares = _cells(features), True
    if features.ndim == 1:
        features = features[None]
    elif features.ndim == 3:
        features = features.reshape(-1, features.shape[-1])
    if boxes is not None and features.ndim == 2 and len(features) != len(boxes):
        features = features.T if features.shape[1] == len(boxes) else features
    features, boxes = _cut(features, boxes, arrays, where)
    width, height = (_number(arrays, names, where) for names in (WIDTH, HEIGHT))
    return Record(
        image_id=image_id,
        where=where,
        features=features,
        boxes=boxes,
        are_shares=are_shares,
        size=None if width is None or height is None else (width, height),
    )


def first_of(names: Collection[str], known: Collection[str]) -> str | None:
    """The first of the known names that is among ``names``."""
    return next((name for name in known if name in names), None)


def numbers(array: Any, where: str) -> np.ndarray:
    """The array, which must be one of numbers.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu" or not array.size:
        raise ValueError(f"{where}: must be an array of numbers")
    return array


def _boxes(arrays: Mapping[str, Any], where: str) -> tuple[np.ndarray | None, bool]:
    pixels, shares = first_of(arrays, BOXES), first_of(arrays, SHARES)
    name = shares or pixels
    if name is None:
        return None, False
    boxes = numbers(arrays[name], f"{where}, {name}")
    if boxes.ndim == 1 and boxes.size % 4 == 0:
        boxes = boxes.reshape(-1, 4)
    # Shares may be followed by the box's width, height and area.
    if boxes.ndim != 2 or boxes.shape[1] < 4 or (shares is None and boxes.shape[1] != 4):
        raise ValueError(f"{where}: {name} must be (n, 4): got {boxes.shape}")
    return boxes[:, :4], shares is not None


def _cells(features: np.ndarray) -> np.ndarray:
    """Boxes ``(n, 4)`` in shares: the whole photo, or the cells of a grid in rows."""
    height, width = (1, 1) if features.ndim == 1 else features.shape[:2]
    y, x = (axis.ravel() for axis in np.mgrid[:height, :width])
    return np.stack([x / width, y / height, (x + 1) / width, (y + 1) / height], axis=1)


def _cut(
    features: np.ndarray, boxes: np.ndarray | None, arrays: Mapping[str, Any], where: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """Padded rows are cut off; features and boxes must be as many."""
    count = _number(arrays, COUNT, where)
    if count is not None:
        if not 1 <= count <= len(features) or count != int(count):
            raise ValueError(f"{where}: num_boxes is {count:g}, features are {features.shape}")
        features = features[: int(count)]
        boxes = None if boxes is None else boxes[: int(count)]
    if boxes is not None and len(boxes) != len(features):
        raise ValueError(f"{where}: {len(features)} features and {len(boxes)} boxes")
    return features, boxes


def _number(arrays: Mapping[str, Any], names: Collection[str], where: str) -> float | None:
    name = first_of(arrays, names)
    if name is None:
        return None
    value = np.asarray(arrays[name])
    if value.size != 1 or value.dtype.kind not in "fiu":
        raise ValueError(f"{where}: {name} must be a number")
    return float(value.ravel()[0])


def _listed(arrays: Collection[str]) -> str:
    return ", ".join(map(str, list(arrays)[:6])) or "nothing"
