"""The chance that a pair is wrong, learnt from the set itself: no labels, no trained threshold.

The scores of the given pairs are a mixture: of right pairs, and of wrong ones, which score as pairs
drawn at random do. The ratio of the two densities is taken as an exponential tilt, ``exp(a + b x)``
(Qin, 1999; Zou, Fine and Yandell, 2002), so that expectation and maximisation is a weighted
logistic regression of given against random pairs. The share of wrong pairs comes out beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 60
_NEWTON_STEPS = 8
_RIDGE = 1e-2
_FIRST_SHARE = 0.1
_SMALLEST_SHARE, _LARGEST_SHARE = 1e-4, 0.95
_CLIP = 30.0
Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """A fitted mixture of right and wrong pairs.

    Attributes:
        share: of wrong pairs, in [0, 1].
        separation: chance that a given pair scores above a random one (AUC), in [0, 1].
        weights: ``(F + 1,)`` of the features and of 1, the log-ratio of the densities.
        middle, scale: ``(F,)`` of the random pairs' features.
    """

    share: float
    separation: float
    weights: Values
    middle: Values
    scale: Values

    def log_ratio(self, features: Values) -> Values:
        """``(N,)`` log-density among right pairs less that among random ones, of ``(N, F)``."""
        scaled = (features - self.middle) / self.scale
        return np.clip(_with_one(scaled) @ self.weights, -_CLIP, _CLIP)

    def chance_wrong(self, features: Values) -> Values:
        """``(N,)`` in [0, 1], of ``(N, F)``."""
        right = (1 - self.share) * np.exp(self.log_ratio(features))
        return self.share / (self.share + right)


def fit_mixture(given: Values, random: Values) -> Mixture:
    """Fit a mixture.

    Args:
        given: ``(N, F)`` features of the pairs in question, higher for a better fit.
        random: ``(M, F)`` of pairs of which nearly all are wrong.
    """
    middle, scale = random.mean(0), random.std(0).clip(min=1e-6)
    inputs = _with_one((np.concatenate([given, random]) - middle) / scale)
    targets = np.concatenate([np.ones(len(given)), np.zeros(len(random))])
    right = np.full(len(given), 1 - _FIRST_SHARE)
    weights, share = np.zeros(inputs.shape[1]), _FIRST_SHARE
    for _ in range(_ROUNDS):
        balance = np.concatenate([right / right.sum(), np.full(len(random), 1 / len(random))])
        weights = _logistic(inputs, targets, balance * len(given), weights)
        ratio = np.exp(np.clip(inputs[: len(given)] @ weights, -_CLIP, _CLIP))
        right = (1 - share) * ratio / ((1 - share) * ratio + share)
        new = float(np.clip(1 - right.mean(), _SMALLEST_SHARE, _LARGEST_SHARE))
        if abs(new - share) < 1e-6:
            break
        share = new
    scores = inputs @ weights
    separation = _auc(scores[: len(given)], scores[len(given) :])
    return Mixture(share=share, separation=separation, weights=weights, middle=middle, scale=scale)


def _with_one(features: Values) -> Values:
    return np.concatenate([features, np.ones((len(features), 1))], axis=1)


def _logistic(inputs: Values, targets: Values, balance: Values, weights: Values) -> Values:
    """Newton's steps of a weighted logistic regression from ``weights``."""
    ridge = np.full(len(weights), _RIDGE)
    ridge[-1] = 0
    for _ in range(_NEWTON_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(inputs @ weights, -_CLIP, _CLIP)))
        slope = inputs.T @ (balance * (targets - chance)) - ridge * weights
        curvature = (inputs * (balance * chance * (1 - chance))[:, None]).T @ inputs
        step = np.linalg.solve(curvature + np.diag(ridge + 1e-9), slope)
        weights = weights + step
        if np.abs(step).max() < 1e-7:
            break
    return weights


def _auc(higher: Values, lower: Values) -> float:
    order = np.argsort(np.concatenate([higher, lower]), kind="stable")
    ranks = np.empty(len(order))
    ranks[order] = np.arange(1, len(order) + 1)
    above = ranks[: len(higher)].sum() - len(higher) * (len(higher) + 1) / 2
    return float(above / (len(higher) * len(lower)))
