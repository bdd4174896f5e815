"""Normal distributions with independent dimensions, as latent variables have them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Of log-variances: standard deviations from .05 to 20.
WIDEST = 6.0


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
    def of(cls, statistics: Tensor) -> Gaussian:
        """From ``(..., 2Z)``: means, then log-variances, as a layer gives them.

        Log-variances are bent smoothly to stay in ``(-WIDEST, WIDEST)``: in a chain whose latents
        feed the next one's variance, a large one would make the next infinite.
        """
        mean, log_variance = statistics.chunk(2, dim=-1)
        return cls(mean=mean, log_variance=WIDEST * torch.tanh(log_variance / WIDEST))

    def at(self, noise: Tensor, temperature: float = 1.0) -> Tensor:
        """A draw ``(..., Z)``: the mean plus standard normal ``noise`` times the spread.

        Args:
            noise: ``(..., Z)``.
            temperature: the spread is ``exp(temperature * log_variance / 2)``: 1 is the
                distribution itself, below 1 draws the spread towards 1 from either side, as the
                authors of COS-CVAE do where they sample; 0 stands for the mean alone.
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
