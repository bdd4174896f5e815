"""Normal distributions with independent dimensions, for latent variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


def keyed_noise(keys: Sequence[tuple[int, ...]], lengths: Sequence[int], size: int) -> Tensor:
    """Draw standard normal numbers for sequences, each from its own generator.

    A sequence's numbers do not depend on the batch, its order or its padding. They are
    drawn step by step: sequences with equal keys begin alike, whatever their lengths.

    Args:
        keys: keys of B sequences, of non-negative numbers such as (seed, row, updates).
        lengths: number of steps of each sequence.
        size: numbers per step.

    Returns:
        ``(B, T, size) float32`` on the CPU, 0 after a sequence's end.
    """
    noise = np.zeros((len(keys), max(lengths), size), dtype=np.float32)
    for place, (key, length) in enumerate(zip(keys, lengths, strict=True)):
        np.random.default_rng(key).standard_normal(out=noise[place, :length], dtype=np.float32)
    return torch.from_numpy(noise)


def key_of(name: int | str) -> int:
    """Convert a name, such as an image id, to a number."""
    return int.from_bytes(name.encode()) if isinstance(name, str) else int(name)


# Bound of log-variances: standard deviations from .05 to 20.
MAX_LOG_VARIANCE = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaussian:
    """Normal distributions of any number of dimensions.

    Attributes:
        mean: ``(..., Z)``.
        log_variance: ``(..., Z)``.
    """

    mean: Tensor
    log_variance: Tensor

    @classmethod
    def of(cls, statistics: Tensor, *, bounded: bool = True) -> Gaussian:
        """Build from a layer's output ``(..., 2Z)``: means, then log-variances.

        ``bounded`` log-variances are squashed smoothly into ``(-MAX_LOG_VARIANCE,
        MAX_LOG_VARIANCE)``: in a chain each latent affects the next variance, and a large one
        would make it infinite. The authors of COS-CVAE use them unbounded.
        """
        mean, log_variance = statistics.chunk(2, dim=-1)
        if not bounded:
            return cls(mean=mean, log_variance=log_variance)
        return cls(
            mean=mean, log_variance=MAX_LOG_VARIANCE * torch.tanh(log_variance / MAX_LOG_VARIANCE)
        )

    def sample(self, noise: Tensor, temperature: float = 1.0) -> Tensor:
        """Sample ``(..., Z)``: mean plus standard normal ``noise`` times standard deviation.

        Args:
            noise: ``(..., Z)``.
            temperature: the standard deviation is ``exp(temperature * log_variance / 2)``: 1 is the
                distribution itself; values below 1 move the deviation towards 1, as
                the authors of COS-CVAE do in sampling; 0 gives the mean.
        """
        if temperature == 0:
            return self.mean
        return self.mean + noise * torch.exp(0.5 * temperature * self.log_variance)

    def divergence(self, other: Gaussian) -> Tensor:
        """Return the Kullback-Leibler divergence to ``other``, ``(..., Z)`` in nats."""
        gap = self.log_variance - other.log_variance
        distance = (self.mean - other.mean).square() * torch.exp(-other.log_variance)
        return 0.5 * (gap.exp() + distance - 1 - gap)

    def log_density(self, values: Tensor) -> Tensor:
        """Return the log-density of ``values (..., Z)`` over all dimensions, ``(...,)`` in nats."""
        distance = (values - self.mean).square() * torch.exp(-self.log_variance)
        constant = torch.log(values.new_tensor(2 * torch.pi))
        return -0.5 * (distance + self.log_variance + constant).sum(-1)
