"""Features of photos as they come, the same numbers as those of the cache."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from captioning.data.batches.base import AbstractBatchReader, Epoch, Read, Tensors
from captioning.runtime.devices import full_precision
from captioning.types import Sample
from captioning.vision.backbones import Backbone, grid_features
from captioning.vision.photos import load_rgb


class LiveFeatures(AbstractBatchReader):
    """Sends the photos of each batch through a backbone; nothing is kept.

    Args:
        backbone: of the run's features.
        kind: ``"grid"``, or ``"regions"``: the photo, then the samples' boxes.
        max_boxes: the first so many boxes of a photo are used.
        precision: of the cache, see `ensure_features`, or another one of `DTYPES`.
        device: where the backbone works.
    """

    def __init__(
        self,
        *,
        backbone: Backbone,
        kind: str,
        max_boxes: int = 36,
        precision: str = "float32",
        device: torch.device,
    ) -> None:
        self._backbone = backbone.for_inference(device)
        self._kind, self._max_boxes, self._device = kind, max_boxes, device
        self._precision = precision
        # cuDNN plans its convolutions anew in each thread: on a GPU one thread stays for them.
        self._thread = ThreadPoolExecutor(1) if device.type == "cuda" else None

    @property
    def pictures(self) -> str:
        """``"grid"`` or ``"regions"``."""
        return self._kind

    def open(self, epoch: Epoch) -> Read | None:
        """Reads each photo anew."""
        return self._read

    def _read(
        self, captions: Sequence[Sample], photos: Sequence[Sample], batch: Tensors
    ) -> Tensors:
        pixels, boxes = [], []
        for photo in photos:
            image = load_rgb(photo.image_path)
            if self._kind == "regions":
                boxes.append(self._boxes(photo, image.width, image.height))
            fitted = np.array(self._backbone.fitted(image), dtype=np.uint8)
            pixels.append(torch.from_numpy(fitted).permute(2, 0, 1))
        stacked = torch.stack(pixels)
        if self._thread is None:
            return self._features(stacked, boxes)
        return self._thread.submit(self._features, stacked, boxes).result()

    def _boxes(self, photo: Sample, width: int, height: int) -> Tensor:
        from captioning.vision.boxes import scale_boxes

        chosen = [region.box for region in photo.regions[: self._max_boxes]]
        return scale_boxes(chosen, width, height, str(photo.image_path))

    @torch.inference_mode()
    def _features(self, pixels: Tensor, boxes: Sequence[Tensor]) -> Tensors:
        with full_precision():  # as the cache was computed; TF32 differs
            grid = grid_features(self._backbone, pixels.to(self._device), self._precision)
        if self._kind == "grid":
            return {"regions": grid.half().cpu(), "region_mask": None}
        from captioning.vision.boxes import pool_regions

        return _padded(pool_regions(grid, self._backbone.grid_size, boxes))


def _padded(regions: list[Tensor]) -> Tensors:
    """Regions of several photos, zero where there is none, and which exist."""
    counts = torch.tensor([len(features) for features in regions])
    padded = torch.nn.utils.rnn.pad_sequence([r.half().cpu() for r in regions], batch_first=True)
    mask = torch.arange(padded.shape[1]) < counts[:, None]
    return {"regions": padded, "region_mask": None if mask.all() else mask}
