"""Predict the words in a photo's captions from the photo's features alone.

A linear regression maps the mean of a photo's cell features to the share of its captions that
name each thing of a row. It is fitted on the captions to be judged, so the prediction for a
training photo holds out that photo; ridge regression has a closed form for this
(Allen, 1974, "The relationship between variable selection and data augmentation"):

    left out = (fitted - h y) / (1 - h),   h the photo's leverage

The penalty minimises this held-out squared error. Other networks read how much likelier than
average a thing is named:

    z = log((max(expected, 0) + 0.01) / (share of all photos' captions + 0.01))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from captioning.text.row_tables import WORD

_PENALTIES = (0.25, 1.0, 4.0, 16.0, 64.0)  # in units of a photo's mean squared length
_LEAST = 0.01  # added to shares: below it, how rare a thing is does not matter
_LEAST_SPREAD = 1e-3


@dataclass(frozen=True, kw_only=True)
class PhotoFeatures:
    """Features of photos: cells and whole-photo means.

    Attributes:
        cells: ``(I, R, D)`` features of the photos' cells, reduced in dimension.
        means: ``(I, C)`` features of whole photos.
    """

    cells: Tensor
    means: Tensor


class ExpectedWords:
    """Regression that predicts which things captions name, fitted at construction.

    Args:
        means: ``(I, C)`` features of whole photos.
        captions: training captions.
        photos: ``(N,)`` photo number of each caption.
        thing_of: number of the thing, in [0, T), that each word names.

    Attributes:
        left_out: ``(I, T)`` held-out log-ratios: how much likelier than average each thing is
            in each photo; 0 for photos without captions.
    """

    def __init__(
        self,
        means: Tensor,
        captions: Sequence[str],
        photos: Sequence[int],
        thing_of: Mapping[str, int],
    ) -> None:
        shares, known = _named_shares(captions, photos, thing_of, len(means))
        learnt = means[known].float()
        self._centre = learnt.mean(0)
        self._scale = (learnt.std(0, correction=0) + _LEAST_SPREAD) * learnt.shape[1] ** 0.5
        inputs = self._inputs(learnt)
        named = shares[known]
        self._share = named.mean(0)
        values, vectors = torch.linalg.eigh(inputs.T @ inputs)
        values = values.clamp_min(0)
        turned = inputs @ vectors
        products = turned.T @ (named - self._share)
        fits = [
            _left_out(turned, products / (values + penalty)[:, None], values + penalty, named)
            for penalty in _PENALTIES
        ]
        errors = [float((fit - named).square().mean()) for fit in fits]
        best = int(np.argmin(errors))
        self._weights = vectors @ (products / (values + _PENALTIES[best])[:, None])
        self.left_out = torch.zeros(len(means), shares.shape[1])
        self.left_out[known] = self._log_ratios(fits[best])

    def __call__(self, means: Tensor) -> Tensor:
        """Return log-ratios ``(I, T)`` for photos ``(I, C)`` outside the fitting data."""
        return self._log_ratios(self._inputs(means.float()) @ self._weights + self._share)

    def _inputs(self, means: Tensor) -> Tensor:
        return (means - self._centre) / self._scale

    def _log_ratios(self, expected: Tensor) -> Tensor:
        return ((expected.clamp_min(0) + _LEAST) / (self._share + _LEAST)).log()


def _left_out(turned: Tensor, weights: Tensor, penalised: Tensor, named: Tensor) -> Tensor:
    """Return held-out expected shares ``(I, T)`` of each photo, with the mean kept."""
    share = named.mean(0)
    leverage = (turned.square() @ (1 / penalised))[:, None]
    centred = named - share
    return (turned @ weights - leverage * centred) / (1 - leverage) + share


def _named_shares(
    captions: Sequence[str], photos: Sequence[int], thing_of: Mapping[str, int], number: int
) -> tuple[Tensor, Tensor]:
    """Return the share ``(I, T)`` of each photo's captions per thing, and who has any ``(I,)``."""
    size = max(thing_of.values()) + 1
    named, counts = np.zeros((number, size), np.float32), np.zeros(number, np.float32)
    for caption, photo in zip(captions, photos, strict=True):
        words = {word.lower() for word in WORD.findall(caption)}
        named[photo, list({thing_of[word] for word in words if word in thing_of})] += 1
        counts[photo] += 1
    shares = named / np.maximum(counts, 1)[:, None]
    return torch.from_numpy(shares), torch.from_numpy(counts > 0)
