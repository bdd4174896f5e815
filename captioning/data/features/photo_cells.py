"""Features of photos reduced in dimension, for small networks trained beside a captioner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from captioning.config.ranges import ArgumentsOf, PositiveInt, Seed
from captioning.data.features.build import ensure_features
from captioning.data.features.store import FeatureStore
from captioning.text.expected_words import PhotoFeatures
from captioning.vision.backbones import Backbone

_READ_AT_ONCE = 128  # photos
_BASIS_PHOTOS = 500


class PhotoCells:
    """Grid features of photos, reduced to principal components, and their full means.

    Args:
        backbone: frozen network of the photos.
        features: arguments of `captioning.data.features.build.ensure_features`.
        more: further frozen networks; the means of their cells are beside the means of
            ``backbone``.
        num_components: number of components of each cell's features, D.
        seed: seed of the photos that the components are computed of.
    """

    def __init__(
        self,
        *,
        backbone: Backbone,
        features: Annotated[Mapping[str, Any], ArgumentsOf(ensure_features)],
        more: Sequence[Backbone] = (),
        num_components: PositiveInt = 192,
        seed: Seed = 0,
    ) -> None:
        self._backbone, self._more, self._features = backbone, tuple(more), dict(features)
        self._num_components, self._seed = num_components, seed
        self._basis: tuple[Tensor, Tensor] | None = None
        self._known: dict[Path, tuple[Tensor, Tensor]] = {}

    @torch.inference_mode()
    def __call__(self, paths: Sequence[Path]) -> PhotoFeatures:
        """Return cells ``(len(paths), R, D) float16`` and means ``(len(paths), C) float32``.

        The components are those of the first call's photos.
        """
        missing = list({path: None for path in paths if path not in self._known})
        if missing:
            networks = (self._backbone, *self._more)
            stores = [ensure_features(missing, backbone=b, **self._features) for b in networks]
            self._read(stores, missing)
        known = [self._known[path] for path in paths]
        return PhotoFeatures(
            cells=torch.stack([cells for cells, _ in known]),
            means=torch.stack([means for _, means in known]),
        )

    def _read(self, stores: Sequence[FeatureStore], paths: Sequence[Path]) -> None:
        positions = [store.positions(paths) for store in stores]
        if self._basis is None:
            self._basis = self._components(stores[0], positions[0])
        mean, basis = self._basis
        for start in range(0, len(paths), _READ_AT_ONCE):
            block = slice(start, start + _READ_AT_ONCE)
            pairs = zip(stores, positions, strict=True)
            read = [store.read(own[block])[0].float() for store, own in pairs]
            reduced = ((read[0] - mean) @ basis).half()
            means = torch.cat([cells.mean(1) for cells in read], 1)
            self._known |= zip(paths[block], zip(reduced, means, strict=True), strict=True)

    def _components(self, store: FeatureStore, positions: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the mean ``(C,)`` of the cells and the basis ``(C, D)``, scaled to deviation 3.

        Networks train well on inputs of such a size.
        """
        generator = np.random.default_rng(self._seed)
        number = min(_BASIS_PHOTOS, len(positions))
        drawn = np.sort(generator.choice(positions, size=number, replace=False))
        cells = store.read(drawn)[0].float().flatten(0, 1)
        mean = cells.mean(0)
        values, vectors = torch.linalg.eigh(torch.cov((cells - mean).T))
        basis = vectors[:, -self._num_components :].flip(1)
        return mean, basis * (3 / values[-1].clamp_min(1e-12).sqrt())
