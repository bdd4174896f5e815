"""Batch readers of pictures: cached features, or pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from captioning.data.batches.base import DRAW, AbstractBatchReader, Epoch, Read, Tensors
from captioning.data.features.store import FeatureStore
from captioning.types import Sample
from captioning.vision.backbones import Backbone
from captioning.vision.photos import load_rgb

WHOLE = 0.98  # share of the photo from which a box counts as all of it

Transform = Callable[[Image.Image], Tensor]
Extend = Callable[[Mapping[Path, Sample]], FeatureStore]


class FeatureReader(AbstractBatchReader):
    """Batch reader of cached features: ``regions (I, R, D) float16`` and their mask or None.

    Imported features that have boxes give these, too: ``boxes (I, R, 4) float32`` in shares of the
    photo's sides.

    Args:
        store: has the features of all photos in ``samples``.
        samples: a sample of each photo by its path.
        extend: gives a store with the features of these photos, which are those of ``samples`` and
            further ones; None for imported features, of which there are no others.
        whole_first: the whole photo is the first region of imported features with boxes, as it is
            of those of annotated boxes: the region that the file has of it, or the mean of all.
    """

    def __init__(
        self,
        *,
        store: FeatureStore,
        samples: Mapping[Path, Sample] | None = None,
        extend: Extend | None = None,
        whole_first: bool = False,
    ) -> None:
        self.store = store
        self._whole_first = whole_first and store.kind == "imported" and store.has_boxes
        self._samples, self._extend = dict(samples or {}), extend

    @property
    def pictures(self) -> str:
        """Form: ``"grid"``, ``"regions"``, ``"imported"`` or ``"imported regions"``."""
        return "imported regions" if self._whole_first else self.store.kind

    @property
    def refuses_photos(self) -> str:
        """Explain that imported features have no backbone for other photos."""
        if self._extend is not None:
            return ""
        return (
            f"the features in {self.store.folder} were imported, so there is no backbone to "
            "compute features of other photos: choose features= with a backbone, or features=none"
        )

    def open(self, epoch: Epoch) -> Read | None:
        """Return a function that reads features by position; features of new photos come first."""
        if not epoch.has_photos:
            return None
        self._add_new(epoch.samples)
        places = _places(self.store, epoch.samples)
        return partial(_read_features, self.store, places, whole_first=self._whole_first)

    def _add_new(self, samples: Sequence[Sample]) -> None:
        """Compute the features of photos that curation has put in."""
        if self._extend is None:
            return
        new = {s.image_path: s for s in samples if s.image_path not in self._samples}
        if new:
            self._samples |= new
            self.store = self._extend(self._samples)


def find_positions(store: FeatureStore, samples: Sequence[Sample]) -> np.ndarray:
    """Return the position ``(N,)`` of each sample's picture in a store; look up each only once."""
    places = _places(store, samples)
    return np.array([places[_name(store, sample)] for sample in samples])


def _places(store: FeatureStore, samples: Sequence[Sample]) -> dict[str | Path, int]:
    """Return the position of each picture of samples, by its `_name`."""
    if store.kind == "imported":
        names = list(dict.fromkeys(sample.image_id for sample in samples))
        return dict(zip(names, store.positions_of_ids(names).tolist(), strict=True))
    paths = list(dict.fromkeys(sample.image_path for sample in samples))
    return dict(zip(paths, store.positions(paths).tolist(), strict=True))


def _name(store: FeatureStore, sample: Sample) -> str | Path:
    """Return the key by which a store finds a sample's picture."""
    return sample.image_id if store.kind == "imported" else sample.image_path


def _read_features(
    store: FeatureStore,
    positions: Mapping[str | Path, int],
    captions: Sequence[Sample],
    photos: Sequence[Sample],
    batch: Tensors,
    *,
    whole_first: bool = False,
) -> Tensors:
    where = np.array([positions[_name(store, photo)] for photo in photos])
    regions, mask = store.read(where)
    if not store.has_boxes:
        return {"regions": regions, "region_mask": mask}
    boxes = store.read_boxes(where)
    if whole_first:
        regions, mask, boxes = with_whole_photo(regions, mask, boxes)
    return {"regions": regions, "region_mask": mask, "boxes": boxes}


def with_whole_photo(
    regions: Tensor, mask: Tensor | None, boxes: Tensor
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Insert the whole photo as the first region of every photo.

    Where the first box covers the photo it stays the first, else the mean of the regions is put
    before them.

    Args:
        regions: ``(I, R, D)``.
        mask: ``(I, R) bool``, True where a region exists; None if all do.
        boxes: ``(I, R, 4)`` in shares of the photo's sides.

    Returns:
        the three, of ``R + 1`` regions at most; the mask is None if all exist.
    """
    sides = boxes[:, 0, 2:] - boxes[:, 0, :2]
    has_whole = sides.prod(-1) >= WHOLE
    if has_whole.all():
        return regions, mask, boxes
    exists = torch.ones(regions.shape[:2], dtype=torch.bool) if mask is None else mask
    counts = exists.sum(1, keepdim=True)
    means = (regions.float().sum(1) / counts).to(regions.dtype)
    new = (
        torch.cat([means[:, None], regions], dim=1),
        torch.cat([torch.ones_like(exists[:, :1]), exists], dim=1),
        torch.cat([torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(len(boxes), 1, 4), boxes], dim=1),
    )
    old = [nn.functional.pad(regions, (0, 0, 0, 1)), nn.functional.pad(exists, (0, 1))]
    old.append(nn.functional.pad(boxes, (0, 0, 0, 1)))
    regions, exists, boxes = (
        torch.where(has_whole.view(-1, *[1] * (a.ndim - 1)), a, b)
        for a, b in zip(old, new, strict=True)
    )
    width = int(exists.sum(1).max())
    regions, exists, boxes = regions[:, :width], exists[:, :width], boxes[:, :width]
    return regions, None if exists.all() else exists, boxes


class PixelReader(AbstractBatchReader):
    """Batch reader of pixels: ``images (I, 3, H, W)``, ``uint8`` with this project's transforms.

    Args:
        backbone: backbone that reads the pixels.
        train_transform, eval_transform: give an RGB photo's pixels ``(3, H, W)`` when they are
            called with the backbone, as `captioning.data.batches.transforms.EvalTransform` does:
            ``uint8``, or ``float32`` that are normalised. One with a method ``seeded(key)`` draws
            by that key: seed, epoch, number of the batch, and row of the photo's first caption.
    """

    def __init__(
        self,
        *,
        backbone: Backbone,
        train_transform: Callable[..., Transform],
        eval_transform: Callable[..., Transform],
    ) -> None:
        self._train = train_transform(backbone=backbone)
        self._eval = eval_transform(backbone=backbone)

    @property
    def pictures(self) -> str:
        """Form of the pictures: ``"pixels"``."""
        return "pixels"

    def open(self, epoch: Epoch) -> Read | None:
        """Return a function that reads each photo again, so random crops differ."""
        if not epoch.has_photos:
            return None
        return partial(_read_pixels, self._train if epoch.stage == "train" else self._eval)


def _read_pixels(
    transform: Transform, captions: Sequence[Sample], photos: Sequence[Sample], batch: Tensors
) -> Tensors:
    seeded, key = getattr(transform, "seeded", None), batch.get(DRAW)
    if seeded is None or key is None:
        transforms = [transform] * len(photos)
    else:
        transforms = [seeded((*key, photo.row)) for photo in photos]
    side = getattr(transform, "smallest_side", None)
    images = [load_rgb(photo.image_path, smallest_side=side) for photo in photos]
    return {"images": torch.stack([f(image) for f, image in zip(transforms, images, strict=True)])}
