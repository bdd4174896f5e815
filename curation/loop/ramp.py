"""Settings that increase or decrease over the epochs."""

from __future__ import annotations

from dataclasses import dataclass

from captioning.config.ranges import Fraction
from curation.base import require_fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """A fraction that changes linearly from one value to another, and then stays constant.

    Attributes:
        first: up to and including epoch ``from_epoch``, in [0, 1].
        last: value from epoch ``until_epoch`` on, in [0, 1].
        from_epoch, until_epoch: epochs (from 0), the second after the first.

    Raises:
        ValueError: a value is outside [0, 1], or the epochs are out of order.
    """

    first: Fraction
    last: Fraction
    from_epoch: int = 0
    until_epoch: int

    def __post_init__(self) -> None:
        require_fraction("first", self.first)
        require_fraction("last", self.last)
        if self.until_epoch <= self.from_epoch:
            raise ValueError(
                f"a ramp must end after it begins: got until_epoch {self.until_epoch} with "
                f"from_epoch {self.from_epoch}"
            )

    def at(self, epoch: int) -> float:
        """Return the fraction at the end of ``epoch``."""
        passed = (epoch - self.from_epoch) / (self.until_epoch - self.from_epoch)
        return self.first + (self.last - self.first) * min(1.0, max(0.0, passed))


def require_ratio(ratio: float | Ramp) -> Ramp:
    """Return a constant ramp for a fixed ratio; return a `Ramp` unchanged.

    Raises:
        ValueError: the ratio is outside [0, 1].
    """
    if isinstance(ratio, Ramp):
        return ratio
    fixed = require_fraction("ratio", ratio)
    return Ramp(first=fixed, last=fixed, until_epoch=1)
