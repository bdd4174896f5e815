"""Normal distributions with independent dimensions, for latent variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


def keyed_noise(keys: Sequence[tuple[int, ...]], lengths: Sequence[int], size: int) -> Tensor:
    """Standard normal numbers of sequences, each from its own generator.

    So neither the batch, nor its order, nor its padding changes the numbers of a sequence. They are
    drawn step by step: sequences of one key begin alike, whatever their lengths.

    Args:
        keys: keys of B sequences; numbers of at least 0 each, such as (seed, row, updates).
        lengths: steps of each.
        size: numbers a step.

    Returns:
        ``(B, T, size) float32`` on the CPU, 0 after a sequence's end.
    """
    noise = np.zeros((len(keys), max(lengths), size), dtype=np.float32)
    for place, (key, length) in enumerate(zip(keys, lengths, strict=True)):
        np.random.default_rng(key).standard_normal(out=noise[place, :length], dtype=np.float32)
    return torch.from_numpy(noise)


def key_of(name: int | str) -> int:
    """A name, such as an image id, as a number."""
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
        """Made from a layer's output ``(..., 2Z)``: means, then log-variances.

        ``bounded`` log-variances are squashed smoothly into ``(-MAX_LOG_VARIANCE,
        MAX_LOG_VARIANCE)``: in a chain each latent feeds the next one's variance, and a large one
        would make it infinite. The authors of COS-CVAE take them as they are.
        """
        mean, log_variance = statistics.chunk(2, dim=-1)
        if not bounded:
            return cls(mean=mean, log_variance=log_variance)
        return cls(
            mean=mean, log_variance=MAX_LOG_VARIANCE * torch.tanh(log_variance / MAX_LOG_VARIANCE)
        )

    def sample(self, noise: Tensor, temperature: float = 1.0) -> Tensor:
        """A draw ``(..., Z)``: the mean plus standard normal ``noise`` times the spread.

        Args:
            noise: ``(..., Z)``.
            temperature: the spread is ``exp(temperature * log_variance / 2)``: 1 is the
                distribution itself; values below 1 move the spread towards 1 from either side, as
                the authors of COS-CVAE do in sampling; 0 gives the mean.
        """
        if temperature == 0:
            return self.mean
        return self.mean + noise * torch.exp(0.5 * temperature * self.log_variance)

    def divergence(self, other: Gaussian) -> Tensor:
        """Kullback-Leibler divergence to ``other`` by dimension, ``(..., Z)`` in nats."""
        gap = self.log_variance - other.log_variance
        distance = (self.mean - other.mean).square() * torch.exp(-other.log_variance)
        return 0.5 * (gap.exp() + distance - 1 - gap)

    def log_density(self, values: Tensor) -> Tensor:
        """Log-density of ``values (..., Z)``, summed over dimensions, ``(...,)`` in nats."""
        distance = (values - self.mean).square() * torch.exp(-self.log_variance)
        constant = torch.log(values.new_tensor(2 * torch.pi))
        return -0.5 * (distance + self.log_variance + constant).sum(-1)
