"""How hypotheses of different lengths are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

NormalisationName = Literal["none", "power", "gnmt"]
NORMALISATIONS = get_args(NormalisationName)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalisation:
    """How summed log-probabilities of hypotheses of different lengths are compared.

    Attributes:
        kind: what divides the sum of a hypothesis of ``length`` tokens: ``"none"``: nothing;
            ``"power"``: ``length ** length_penalty``; ``"gnmt"``:
            ``((5 + length) / 6) ** length_penalty`` (Wu et al., 2016, equation 14, without its
            coverage penalty).
        length_penalty: exponent, at least 0, so that no divisor falls with the length.
    """

    kind: NormalisationName = "power"
    length_penalty: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in NORMALISATIONS:
            raise ValueError(f"normalisation must be one of {NORMALISATIONS}: got {self.kind!r}")
        if not self.length_penalty >= 0:
            raise ValueError(f"length_penalty must be at least 0: got {self.length_penalty}")
        if self.kind == "none" and self.length_penalty:
            raise ValueError(
                f"length_penalty must be 0 with normalisation none: got {self.length_penalty}; "
                "choose power or gnmt to use it"
            )

    def scores(self, totals: Tensor, length: int) -> Tensor:
        """Sums of log-probabilities as hypotheses of ``length`` tokens are compared."""
        base = (5 + length) / 6 if self.kind == "gnmt" else length
        return totals / base**self.length_penalty
