"""Select samples that belong to the upper of two normal distributions fitted to the scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from captioning.config.ranges import Fraction
from curation.base import (
    Context,
    Score,
    Selected,
    as_numpy,
    require_fraction,
)
from curation.select.by_score import AbstractByScore
from curation.select.ranking import num_of_fraction, ordered_rows

_STEPS = 200  # maximum iterations of expectation maximisation
_TOLERANCE = 1e-9  # smallest gain in mean log-likelihood to continue, in nats per sample


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoNormals:
    """Two normal distributions, the one with the lower mean first.

    Attributes:
        weights, means, stds: ``(2,)`` each.
    """

    weights: np.ndarray
    means: np.ndarray
    stds: np.ndarray

    def log_joint(self, values: np.ndarray) -> np.ndarray:
        """Logarithm of weight times density, ``(N, 2)``."""
        scaled = (values[:, None] - self.means) / self.stds
        return np.log(self.weights / self.stds) - 0.5 * (scaled**2 + np.log(2 * np.pi))

    def upper(self, values: np.ndarray) -> np.ndarray:
        """Probability that each value came from the upper distribution, ``(N,)``.

        Below the lower mean it is 0: where the upper one is wide, its left tail would claim the
        values that are least suspect.
        """
        log_joint = self.log_joint(values)
        upper = np.exp(log_joint[:, 1] - np.logaddexp.reduce(log_joint, axis=1))
        return np.where(values < self.means[0], 0.0, upper)


class Mixture(AbstractByScore):
    """Fits two normal distributions to the scores and selects the samples of the upper one.

    Suited to scores that separate sound and faulty samples into two modes, as a classifier's losses
    do (Arazo et al., 2019; Li et al., 2020, DivideMix); how many are faulty need not be known.
    Nothing is selected if the Bayesian information criterion prefers one normal distribution to
    two.

    Args:
        min_probability: minimum probability of the upper component that selects a sample, in [0,
            1].
        max_ratio: at most this share of the live samples is selected, the worst first.
        score: score to model; default the epoch's loss.

    Raises:
        ValueError: ``min_probability`` or ``max_ratio`` is outside [0, 1].
    """

    for_fewer = "lower curation.select.max_ratio"

    def __init__(
        self,
        *,
        min_probability: Fraction = 0.5,
        max_ratio: Fraction = 0.5,
        score: Score | None = None,
    ) -> None:
        self.min_probability = require_fraction("min_probability", min_probability)
        self.max_ratio = require_fraction("max_ratio", max_ratio)
        super().__init__(score)

    def select(self, context: Context) -> list[Selected]:
        """Return the selected samples, worst first; samples without a score are never selected."""
        scores = as_numpy(self.scores(context))
        known = context.live_rows[~np.isnan(scores[context.live_rows])]
        fitted = fit_two_normals(scores[known])
        if fitted is None:
            return []
        probability = np.full(len(scores), np.nan)
        probability[known] = fitted.upper(scores[known])
        rows = ordered_rows(context, scores, known[probability[known] > self.min_probability])
        rows = rows[: num_of_fraction(self.max_ratio, len(context.live))]
        means = " and ".join(f"{mean:.3f}" for mean in fitted.means)
        return [
            Selected(
                sample=context.live[row],
                reason=f"{self.score.name} {scores[row]:.3f}, with probability "
                f"{probability[row]:.2f} from the upper of two normals (means {means})",
            )
            for row in rows
        ]


def fit_two_normals(values: np.ndarray) -> TwoNormals | None:
    """Fit two normal distributions by expectation maximisation with a fixed start.

    Args:
        values: ``(N,)`` finite.

    Returns:
        None with fewer than four different values, or where one normal does as well by the Bayesian
        information criterion (three more parameters must earn ``1.5 log N`` nats).
    """
    if len(np.unique(values)) < 4:
        return None
    centre, spread = values.mean(), values.std()
    scaled = (values - centre) / spread
    upper = (scaled > np.median(scaled)).astype(np.float64)
    fitted, likelihood = _maximised(scaled, upper), -np.inf
    for _ in range(_STEPS):
        log_joint = fitted.log_joint(scaled)
        log_sum = np.logaddexp.reduce(log_joint, axis=1)
        fitted = _maximised(scaled, np.exp(log_joint[:, 1] - log_sum))
        if log_sum.mean() - likelihood < _TOLERANCE:
            break
        likelihood = log_sum.mean()
    single_likelihood = -0.5 * (
        1 + np.log(2 * np.pi)
    )  # mean log-likelihood of a standardised normal
    if (likelihood - single_likelihood) * len(values) < 1.5 * np.log(len(values)):
        return None
    order = np.argsort(fitted.means)
    return TwoNormals(
        weights=fitted.weights[order],
        means=fitted.means[order] * spread + centre,
        stds=fitted.stds[order] * spread,
    )


def _maximised(values: np.ndarray, upper: np.ndarray) -> TwoNormals:
    shares = np.stack([1 - upper, upper], axis=1)
    weights = np.maximum(shares.sum(0), 1e-9)
    means = (shares * values[:, None]).sum(0) / weights
    variances = (shares * (values[:, None] - means) ** 2).sum(0) / weights
    # prevents a component of zero width and infinite density on a single value
    stds = np.sqrt(np.maximum(variances, 1e-4))
    return TwoNormals(weights=weights / len(values), means=means, stds=stds)
