"""Run photos through a backbone to get the features that a store holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from captioning.runtime.devices import by_device, full_precision
from captioning.runtime.work_ahead import done_ahead
from captioning.types import Box
from captioning.vision.backbones import Backbone, grid_features
from captioning.vision.region_features import pool_regions, scale_boxes

Kind = Literal["grid", "regions"]
Precision = Literal["float32", "bfloat16"]
Load = Callable[[Path], Image.Image]
Records = list[np.ndarray]
BATCHES_DECODED_AHEAD = 2  # on a GPU


@dataclass(frozen=True, kw_only=True)
class Photo:
    """A photo whose features are computed.

    Attributes:
        path: its file's path.
        key: its record's key.
        boxes: boxes in pixels; none for grid features.
    """

    path: Path
    key: str
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class _Decoded:
    """Decoded pixels ``(3, H, W) uint8`` of a photo, and its boxes ``(n, 4)`` as fractions."""

    photo: Photo
    pixels: Tensor
    boxes: Tensor


class Extraction:
    """Run photos through a backbone; on the CPU each batch has its own thread.

    One torch thread a batch and several batches at once beats several threads in one batch: the
    threads never wait for each other, least of all on a machine that others use too. On a GPU each
    thread only decodes a photo: cuDNN plans its convolutions again in each thread.
    """

    def __init__(
        self, backbone: Backbone, kind: Kind, load: Load, device: torch.device, precision: Precision
    ) -> None:
        self.backbone = backbone.for_inference(device)
        self.kind, self.device, self.load = kind, device, load
        self.precision: Precision = precision

    def features(self, batch: Sequence[Photo]) -> Records:
        """Return the records ``(R, D) float16`` of some photos."""
        torch.set_num_threads(1)  # of this thread; `_by_processor` restores what it was outside
        return self._records([self._decode(photo) for photo in batch])

    def in_batches(
        self, photos: Sequence[Photo], batch_size: int | None, workers: int
    ) -> Iterator[Records]:
        """Yield the records of photos in order, batch by batch, several batches in parallel."""
        size = batch_size or by_device(self.device, processor=4, gpu=64)
        with full_precision():
            if self.device.type == "cpu":
                batches = [photos[n : n + size] for n in range(0, len(photos), size)]
                yield from self._by_processor(batches, workers)
                return
            ahead = BATCHES_DECODED_AHEAD * size
            coming = done_ahead(self._decode, photos, threads=workers, most_ahead=ahead)
            with closing(coming) as decoded:
                while batch := list(islice(decoded, size)):
                    yield self._records(batch)

    def _by_processor(self, batches: Sequence[Sequence[Photo]], workers: int) -> Iterator[Records]:
        torch_threads = torch.get_num_threads()
        try:
            yield from done_ahead(self.features, batches, threads=workers, most_ahead=3 * workers)
        finally:
            torch.set_num_threads(torch_threads)

    def _records(self, decoded: Sequence[_Decoded]) -> Records:
        with torch.inference_mode():
            pixels = torch.stack([photo.pixels for photo in decoded]).to(self.device)
            grid = grid_features(self.backbone, pixels, self.precision)
            if self.kind == "grid":
                records = list(grid.to(torch.float16).cpu().numpy())
            else:
                boxes = [photo.boxes for photo in decoded]
                pooled = pool_regions(grid, self.backbone.grid_size, boxes)
                records = [features.to(torch.float16).cpu().numpy() for features in pooled]
        return [
            _finite(photo.photo, record) for photo, record in zip(decoded, records, strict=True)
        ]

    def _decode(self, photo: Photo) -> _Decoded:
        image = self.load(photo.path)
        boxes = scale_boxes(photo.boxes, image.width, image.height, str(photo.path))
        pixels = np.array(self.backbone.fitted(image), dtype=np.uint8)
        return _Decoded(photo, torch.from_numpy(pixels).permute(2, 0, 1), boxes)


def _finite(photo: Photo, features: np.ndarray) -> np.ndarray:
    if not np.isfinite(features).all():
        raise ValueError(
            f"{photo.path}: the features are not finite in float16 (NaN or beyond 65504); check "
            "the backbone's weights, and that the photo opens"
        )
    return features
