"""Annotated regions as regions of imported features, by the overlap of their boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from captioning.data.batches.base import Epoch, Tensors
from captioning.data.boxes import sample_size
from captioning.types import Control, Sample
from captioning.vision.boxes import scale_boxes

NO_MATCH = -1
NUM_TRIED = 200  # photos that are looked at before an epoch begins
TOO_FEW = 0.1  # share of their regions that must have a match


class MatchedControls:
    """Gives batches ``controls`` that ask for regions of imported features.

    An annotated region stands for the imported box that overlaps it most, as in CIC-BART's code
    (where features are those of the annotated boxes themselves, that is the same box). Two that
    stand for one box are asked for once. A region without a match is not asked for.

    Args:
        controls: by ``sample_id``, in positions of annotated regions.
        min_overlap: intersection over union from which boxes match; 0 takes any, as the authors do.
    """

    def __init__(self, controls: Mapping[str, Control], *, min_overlap: float) -> None:
        self._controls, self.min_overlap = controls, min_overlap
        self._matches: dict[str, tuple[int, ...]] = {}

    def __call__(
        self, captions: Sequence[Sample], photos: Sequence[Sample], batch: Tensors
    ) -> Tensors:
        """Controls of a batch that has ``boxes (I, R, 4)``, the whole photo first."""
        for number, photo in enumerate(photos):
            if photo.image_id not in self._matches:
                self._matches[photo.image_id] = self._match(photo, _boxes_of(batch, number))
        return {"controls": tuple(map(self._translated, captions))}

    def check(self, epoch: Epoch) -> None:
        """Refuse features whose boxes are hardly ever those of annotated regions.

        Raises:
            ValueError: too few of the regions that the first photos' captions ask for match.
        """
        asked = [s for s in epoch.samples if self._controls[s.sample_id].regions]
        photos = list({sample.image_id: sample for sample in asked}.values())[:NUM_TRIED]
        if not photos or epoch.read_pictures is None:
            return
        for photo in photos:
            self([photo], [photo], epoch.read_pictures([photo], [photo], {}))
        matches = [match for photo in photos for match in self._matches[photo.image_id]]
        share = sum(match != NO_MATCH for match in matches) / max(len(matches), 1)
        if share < TOO_FEW:
            raise ValueError(
                f"of {len(matches)} annotated regions of the first {len(photos)} photos "
                f"{share:.0%} overlap a box of the imported features by {self.min_overlap:g}: are "
                "these features of these photos? control.min_overlap=0 takes the nearest boxes"
            )

    def _translated(self, sample: Sample) -> Control:
        control = self._controls[sample.sample_id]
        if not control.regions:
            return control
        matches = self._matches[sample.image_id]
        rows = [matches[region] for region in control.regions if region < len(matches)]
        # Row 0 is the whole photo, which is shown in any case; regions are counted after it.
        regions = dict.fromkeys(row - 1 for row in rows if row > 0)
        return replace(control, regions=tuple(regions))

    def _match(self, photo: Sample, boxes: np.ndarray) -> tuple[int, ...]:
        """The row of each annotated region among ``boxes``, or `NO_MATCH`."""
        if not photo.regions:
            return ()
        width, height = _size(photo)
        regions = scale_boxes([r.box for r in photo.regions], width, height, photo.image_id)
        overlaps = overlap(regions.numpy(), boxes)
        best = overlaps.argmax(1)
        enough = overlaps.max(1) >= self.min_overlap
        return tuple(np.where(enough, best, NO_MATCH).tolist())


def overlap(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Intersection over union ``(n, m)`` of boxes ``(n, 4)`` and ``(m, 4)``: x1, y1, x2, y2."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = (high - low).clip(0).prod(-1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).clip(0).prod(-1) for boxes in (first, second)]
    union = areas[0][:, None] + areas[1][None] - shared
    return shared / np.maximum(union, np.finfo(np.float32).tiny)


def _boxes_of(batch: Tensors, number: int) -> np.ndarray:
    boxes: Tensor = batch["boxes"][number]
    mask: Tensor | None = batch["region_mask"]
    return (boxes if mask is None else boxes[mask[number]]).numpy()


def _size(photo: Sample) -> tuple[float, float]:
    try:
        return sample_size(photo)
    except FileNotFoundError as error:
        raise ValueError(
            f"image {photo.image_id}: regions are in pixels of a photo whose size is not known, as "
            "neither annotations nor imported features tell it, and the photo is not there: import "
            "the features with the sizes (captioning import-features ... --sizes FILE)"
        ) from error
