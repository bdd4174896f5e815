"""Weighted mean of losses."""

from __future__ import annotations

from functools import reduce

from torch import Tensor

from captioning.types import Mean

LEAST = 1e-8  # a sum of weights that is divided by, where all of them are 0


def weighted_mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Return ``sum(weights * losses) / sum(weights)``, a scalar.

    A batch with down-weighted captions thus makes as large an update as any other batch: other
    captions gain the weight that these lose. 0 if all weights are 0.

    Args:
        losses: ``(N,)``.
        weights: ``(N,)`` in [0, 1]; None: all 1.
    """
    if weights is None:
        return losses.mean()
    weights = weights.to(losses)
    return (weights * losses).sum() / weights.sum().clamp(min=LEAST)


def product(*weights: Tensor | None) -> Tensor | None:
    """Multiply the weights that several rules give to the same losses; None means weights of 1."""
    given = [factor for factor in weights if factor is not None]
    return reduce(Tensor.mul, given) if given else None


def mean_of(losses: Tensor, weights: Tensor | None) -> Mean:
    """Return the `weighted_mean` with its denominator."""
    value = weighted_mean(losses, weights)
    return Mean(value=value, number=len(losses), weights=weights)
