"""Control signals of captions, derived from their grounded phrases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from captioning.config.ranges import Fraction, PositiveInt
from captioning.data.annotated_boxes import sample_size
from captioning.data.batches.base import AbstractBatchReader, Epoch, Read, Tensors
from captioning.interfaces import AbstractParser
from captioning.text.lengths import count_pieces, count_words
from captioning.types import Control, Sample
from captioning.vision.region_features import scale_boxes

NO_MATCH = -1
NUM_TRIED = 200  # photos that are looked at before an epoch begins
TOO_FEW = 0.1  # share of their regions that must have a match


class MatchedControls:
    """Batch reader of control signals that request regions of imported features.

    An annotated region is replaced by the imported box that overlaps it most, as in CIC-BART's code
    (features of the annotated boxes themselves give the same box). Two that map to one box are
    requested once. A region without a match is not requested.

    Args:
        controls: controls by ``sample_id``, in positions of annotated regions.
        min_overlap: intersection over union from which boxes match; 0 takes any, as the authors do.
    """

    def __init__(self, controls: Mapping[str, Control], *, min_overlap: float) -> None:
        self._controls, self.min_overlap = controls, min_overlap
        self._matches: dict[str, tuple[int, ...]] = {}

    def __call__(
        self, captions: Sequence[Sample], photos: Sequence[Sample], batch: Tensors
    ) -> Tensors:
        """Return the control signals of a batch with ``boxes (I, R, 4)``, the whole photo first."""
        for number, photo in enumerate(photos):
            if photo.image_id not in self._matches:
                self._matches[photo.image_id] = self._match(photo, boxes_of(batch, number))
        return {"controls": tuple(map(self._translated, captions))}

    def check(self, epoch: Epoch) -> None:
        """Raise an error if the features' boxes hardly match the annotated regions.

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
                f"only {share:.0%} of {len(matches)} annotated regions of the first {len(photos)} "
                f"photos overlap an imported box by {self.min_overlap:g}: do these features belong "
                "to these photos? control.min_overlap=0 takes the nearest boxes"
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
        """Return the row in ``boxes`` of each annotated region, or `NO_MATCH`."""
        if not photo.regions:
            return ()
        overlaps = region_overlaps(photo, boxes)
        best = overlaps.argmax(1)
        enough = overlaps.max(1) >= self.min_overlap
        return tuple(np.where(enough, best, NO_MATCH).tolist())


def region_overlaps(photo: Sample, boxes: np.ndarray) -> np.ndarray:
    """Return the intersection over union ``(n, m)`` of annotated regions and m other boxes.

    Args:
        boxes: ``(m, 4)`` in shares of the photo's sides.

    Raises:
        ValueError: the photo's size is not known.
    """
    width, height = _size(photo)
    regions = scale_boxes([r.box for r in photo.regions], width, height, photo.image_id)
    return overlap(regions.numpy(), boxes)


def overlap(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the intersection over union ``(n, m)`` of boxes ``(n, 4)`` and ``(m, 4)``."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = (high - low).clip(0).prod(-1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).clip(0).prod(-1) for boxes in (first, second)]
    union = areas[0][:, None] + areas[1][None] - shared
    return shared / np.maximum(union, np.finfo(np.float32).tiny)


def boxes_of(batch: Tensors, number: int) -> np.ndarray:
    """Return the boxes ``(m, 4)`` of the ``number``-th photo of a batch, without padding."""
    boxes: Tensor = batch["boxes"][number]
    mask: Tensor | None = batch["region_mask"]
    return (boxes if mask is None else boxes[mask[number]]).numpy()


def _size(photo: Sample) -> tuple[float, float]:
    try:
        return sample_size(photo)
    except FileNotFoundError as error:
        raise ValueError(
            f"image {photo.image_id}: regions are in pixels, but the size of the photo is unknown: "
            "neither annotations nor imported features give it, and the photo is missing: import "
            "the features with the sizes (captioning import-features ... --sizes FILE)"
        ) from error


class CaptionControls(AbstractBatchReader):
    """Batch reader of a control signal per caption (CIC-BART-SSA, section 5.1).

    Its regions belong to its grounded phrases, in the caption's order. For a caption without any
    (an image without boxes, a replaced caption or picture) the control is the full photo.

    Args:
        ordered: controls ask for the regions in the caption's order; else for their set.
        length: controls ask for the caption's number of words.
        full_stops_count: count every text between blanks as a word, as the authors' code does, so
            also a lone full stop; otherwise count words alone.
        parser: finds the verbs that controls ask for; None: they ask for none.
        max_regions: the first so many boxes of a photo have features; others are left out. None:
            all have, as with imported features, which have each box once whatever its labels.
        min_overlap: minimum overlap for imported features, whose boxes differ from the annotated
            ones: see `captioning.data.batches.controls.MatchedControls`.
    """

    def __init__(
        self,
        *,
        ordered: bool = True,
        length: bool = True,
        full_stops_count: bool = False,
        parser: AbstractParser | None = None,
        max_regions: PositiveInt | None = 36,
        min_overlap: Fraction = 0.5,
    ) -> None:
        self.ordered, self.length, self.full_stops_count = ordered, length, full_stops_count
        self.parser, self.max_regions, self.min_overlap = parser, max_regions, min_overlap

    def open(self, epoch: Epoch) -> Read | None:
        """Read control signals of the epoch's captions, and the boxes of their regions."""
        return _read_controls(epoch, self(epoch.samples), self.min_overlap)

    def __call__(self, samples: Sequence[Sample]) -> tuple[Control, ...]:
        """Return the control signals of ``samples``, in order."""
        count = count_pieces if self.full_stops_count else count_words
        verbs: list[tuple[str, ...]] = [()] * len(samples)
        if self.parser is not None:
            parses = self.parser.parse([sample.caption for sample in samples])
            verbs = [tuple(t.text for t in parse if t.tag.startswith("VB")) for parse in parses]
        return tuple(
            Control(
                regions=self._regions(sample),
                ordered=self.ordered,
                # a caption of punctuation alone has no words, so no length
                num_words=(count(sample.caption) or None) if self.length else None,
                verbs=caption_verbs,
            )
            for sample, caption_verbs in zip(samples, verbs, strict=True)
        )

    def _regions(self, sample: Sample) -> tuple[int, ...]:
        # A replaced picture has no regions, though its caption still has its phrases.
        num_regions = len(sample.regions[: self.max_regions])
        return tuple(region for region in mentioned_regions(sample) if region < num_regions)


class FixedControls(AbstractBatchReader):
    """Batch reader of given control signals, such as those of other captions.

    Args:
        controls: one for each sample that it is opened with, in order.
        min_overlap: as in `CaptionControls`.
    """

    def __init__(self, controls: Sequence[Control], *, min_overlap: Fraction = 0.5) -> None:
        self.controls, self.min_overlap = controls, min_overlap

    def open(self, epoch: Epoch) -> Read | None:
        """Read the given control signals and their boxes."""
        return _read_controls(epoch, self.controls, self.min_overlap)


def _read_controls(epoch: Epoch, controls: Sequence[Control], min_overlap: float) -> Read | None:
    """Return a reader of control signals; None without photos.

    Raises:
        ValueError: there are no features of regions, or their boxes are of other photos.
    """
    if not epoch.has_photos:
        return None
    names = [sample.sample_id for sample in epoch.samples]
    by_id = dict(zip(names, controls, strict=True))
    if epoch.pictures == "imported regions":
        matched = MatchedControls(by_id, min_overlap=min_overlap)
        matched.check(epoch)
        return matched
    if epoch.pictures == "imported":
        raise ValueError(
            "control requests regions of photos, but the imported features have no boxes: import "
            "them again into a new folder from files that have boxes (captioning import-features)"
        )
    if epoch.pictures != "regions":
        kind = "pixels" if epoch.pictures == "pixels" else f"{epoch.pictures or 'no'} features"
        raise ValueError(
            f"control requests regions of photos, but the batches have {kind}: choose "
            "features=efficientnet_lite0_regions, or leave control out"
        )
    return ControlBatches(by_id)


class ControlBatches:
    """Add ``controls`` (B records) and ``boxes`` to batches, see `captioning.types.Batch`.

    Args:
        controls: controls by ``sample_id``.
    """

    def __init__(self, controls: Mapping[str, Control]) -> None:
        self._controls = controls
        self._shares: dict[Path, Tensor] = {}

    def __call__(
        self, captions: Sequence[Sample], photos: Sequence[Sample], batch: Tensors
    ) -> Tensors:
        """Return control signals and boxes of a batch that has ``regions (I, R, D)``."""
        boxes = torch.zeros(*batch["regions"].shape[:2], 4)
        for target, photo in zip(boxes, photos, strict=True):
            shares = self._shares_of(photo)[: len(target)]
            target[: len(shares)] = shares
        controls = tuple(self._controls[sample.sample_id] for sample in captions)
        return {"controls": controls, "boxes": boxes}

    def _shares_of(self, sample: Sample) -> Tensor:
        """Return ``(1 + n, 4)``: the whole photo, then its regions, as fractions of its sides."""
        path = sample.image_path
        if path not in self._shares:
            shares = torch.empty(0, 4)
            if sample.regions:
                boxes = [region.box for region in sample.regions]
                shares = scale_boxes(boxes, *sample_size(sample), str(path))
            self._shares[path] = torch.cat([torch.tensor([[0.0, 0.0, 1.0, 1.0]]), shares])
        return self._shares[path]


def mentioned_regions(sample: Sample) -> tuple[int, ...]:
    """Return positions of the regions that a caption mentions, in order of first mention."""
    return tuple(dict.fromkeys(region for phrase in sample.phrases for region in phrase.regions))
