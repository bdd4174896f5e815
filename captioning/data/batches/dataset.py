"""An epoch's data set: a plain list of samples that knows nothing of curation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from captioning.data.boxes import photo_size
from captioning.data.features.build import FeatureStore
from captioning.interfaces import AbstractTokenizer
from captioning.types import Batch, Control, Sample
from captioning.vision.boxes import scale_boxes
from captioning.vision.photos import load_rgb

Extras = Callable[[Sequence[Sample]], dict[str, Tensor]]


class CaptionDataset(Dataset[Batch]):
    """Whole batches by lists of positions.

    Args:
        samples: the captions of the epoch.
        tokenizer: turns captions into ids.
        features: cached features, or None to load pixels.
        transform: pixels of a photo to ``(3, H, W)``; needed when there are no features.
        extras: gives further tensors of a batch by name, from its captions' samples.
        photos: whether photos are looked at; without them nothing but captions is trained on.
        controls: what each caption is asked for; batches then hold the regions' boxes too.

    Raises:
        ValueError: no way to look at photos, a photo without features, or controls where there are
            no features of regions.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        *,
        tokenizer: AbstractTokenizer,
        features: FeatureStore | None,
        transform: Callable[[Image.Image], Tensor] | None = None,
        extras: Extras | None = None,
        photos: bool = True,
        controls: Sequence[Control] | None = None,
    ) -> None:
        if photos and features is None and transform is None:
            raise ValueError("a data set needs cached features or a transform for its photos")
        if controls is not None and (features is None or features.kind != "regions"):
            kind = "pixels" if features is None else f"{features.kind} features"
            raise ValueError(
                f"control asks for regions of photos, and there are {kind}: choose "
                "features=efficientnet_lite0_regions, or leave control out"
            )
        self.controls = controls
        self._shares: dict[str, Tensor] = {}
        self.samples = samples
        self.features = features
        self.transform = transform
        self._extras, self._photos = extras, photos
        self.pad_id = tokenizer.pad_id
        self._tokens = [np.asarray(tokenizer.encode(s.caption), dtype=np.int64) for s in samples]
        self._positions = None
        if photos and features is not None:
            self._positions = find_positions(features, samples)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, positions: list[int]) -> Batch:
        """The batch of some samples, longest caption first (the order that packing wants)."""
        order = sorted(positions, key=lambda position: -len(self._tokens[position]))
        # A replaced image makes one image_id stand for two pictures, so pictures are told by path.
        of_batch = [self.samples[position] for position in order]
        paths = [sample.image_path for sample in of_batch]
        unique = {path: number for number, path in enumerate(dict.fromkeys(paths))}
        firsts = [order[paths.index(path)] for path in unique]
        tokens, mask = _padded([self._tokens[position] for position in order], self.pad_id)
        pixels, regions, region_mask = None, None, None
        if self._positions is not None:
            regions, region_mask = self.features.read(self._positions[firsts])
        elif self._photos:
            pixels = torch.stack([self.transform(load_rgb(path)) for path in unique])
        extras = {} if self._extras is None else self._extras(of_batch)
        if self.controls is not None:
            extras["boxes"] = self._boxes(firsts, regions)
        return Batch(
            rows=torch.tensor([sample.row for sample in of_batch]),
            sample_ids=tuple(sample.sample_id for sample in of_batch),
            image_ids=tuple(self.samples[position].image_id for position in firsts),
            image_index=torch.tensor([unique[path] for path in paths]),
            images=pixels,
            regions=regions,
            region_mask=region_mask,
            tokens=tokens,
            token_mask=mask,
            weights=_weights([sample.weight for sample in of_batch]),
            controls=self.controls and tuple(self.controls[position] for position in order),
            extras=extras,
        )

    def _boxes(self, positions: list[int], regions: Tensor) -> Tensor:
        """``(I, R, 4)`` boxes of ``regions (I, R, D)`` in shares of their photos, else 0."""
        boxes = torch.zeros(*regions.shape[:2], 4)
        for target, position in zip(boxes, positions, strict=True):
            found = self._shares_of(self.samples[position])[: len(target)]
            target[: len(found)] = found
        return boxes

    def _shares_of(self, sample: Sample) -> Tensor:
        """``(1 + n, 4)``: the whole photo, then its regions."""
        name = str(sample.image_path)
        if name not in self._shares:
            found = torch.empty(0, 4)
            if sample.regions:
                size = photo_size(sample.image_path)
                found = scale_boxes([region.box for region in sample.regions], *size, name)
            self._shares[name] = torch.cat([torch.tensor([[0.0, 0.0, 1.0, 1.0]]), found])
        return self._shares[name]


def find_positions(features: FeatureStore, samples: Sequence[Sample]) -> np.ndarray:
    """Position of each sample's picture in the store; every picture is looked up once."""
    imported = features.kind == "imported"
    names = [sample.image_id if imported else sample.image_path for sample in samples]
    unique = {name: number for number, name in enumerate(dict.fromkeys(names))}
    find = features.positions_of_ids if imported else features.positions
    return find(list(unique))[[unique[name] for name in names]]


def _weights(weights: list[float]) -> Tensor | None:
    return None if all(weight == 1 for weight in weights) else torch.tensor(weights)


def _padded(rows: list[np.ndarray], pad_id: int) -> tuple[Tensor, Tensor]:
    width = max(len(row) for row in rows)
    tokens = np.full((len(rows), width), pad_id, dtype=np.int64)
    mask = np.zeros((len(rows), width), dtype=bool)
    for number, row in enumerate(rows):
        tokens[number, : len(row)] = row
        mask[number, : len(row)] = True
    return torch.from_numpy(tokens), torch.from_numpy(mask)
