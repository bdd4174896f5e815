"""Confidence intervals of corpus scores by bootstrap over images (Efron, 1979; Koehn, 2004).

A resample draws as many images as there are, with replacement. Every score derives from sums over
images: of scores, BLEU counts or METEOR statistics. A resample therefore costs only a
weighted sum, without new tokenization or matching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_CHUNK = 4_000_000  # bounds the memory at about 32 MB a block


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """Settings of bootstrap intervals.

    Attributes:
        resamples: number of resampled sets of images.
        confidence: coverage of the percentile interval, in (0, 1).
        seed: random seed; equal seeds and numbers of images draw the same resamples.

    Raises:
        ValueError: a number out of range.
    """

    resamples: int = 1000
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        if self.resamples < 1 or not 0 < self.confidence < 1 or self.seed < 0:
            raise ValueError(
                "resamples must be at least 1, confidence in (0, 1) and seed at least 0: got "
                f"{self.resamples}, {self.confidence} and {self.seed}"
            )

    def settings(self) -> dict[str, Any]:
        """Settings to store with intervals."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """Scores that derive from sums over images.

    Attributes:
        names: names of N scores.
        statistics: ``(I, S)`` terms of each image.
        pool: function from sums over images ``(R, S)`` of R resamples to scores ``(R, N)``.
    """

    names: tuple[str, ...]
    statistics: NDArray[Any]
    pool: Callable[[Floats], Floats]


def pooled_mean(name: str, scores: Sequence[float]) -> Pooled:
    """Return a corpus score defined as the mean of the images' scores."""
    column = np.asarray(scores, dtype=np.float64)[:, None]
    return Pooled(names=(name,), statistics=column, pool=lambda sums: sums / len(column))


def intervals(parts: Sequence[Pooled], bootstrap: Bootstrap) -> dict[str, tuple[float, float]]:
    """Return the lower and upper bound of each score; all scores use the same resamples.

    Args:
        parts: scores of the same images in the same order.
        bootstrap: number of resamples, coverage and seed.
    """
    if not parts:
        return {}
    statistics = np.hstack([part.statistics for part in parts]).astype(np.float64)
    sums = _resampled_sums(statistics, bootstrap)
    ends = np.cumsum([part.statistics.shape[1] for part in parts])[:-1]
    tails = [(1 - bootstrap.confidence) / 2, (1 + bootstrap.confidence) / 2]
    found: dict[str, tuple[float, float]] = {}
    for part, own in zip(parts, np.split(sums, ends, axis=1), strict=True):
        low, high = np.quantile(part.pool(own), tails, axis=0)
        found |= {name: (float(low[i]), float(high[i])) for i, name in enumerate(part.names)}
    return found


def resampled(size: int, resamples: int, generator: np.random.Generator) -> Iterator[NDArray[Any]]:
    """Yield drawn image numbers in blocks ``(rows, size)``, ``resamples`` rows in total."""
    rows = max(1, _CHUNK // size)
    for start in range(0, resamples, rows):
        yield generator.integers(0, size, (min(rows, resamples - start), size))


def _resampled_sums(statistics: Floats, bootstrap: Bootstrap) -> Floats:
    size, generator = len(statistics), np.random.default_rng(bootstrap.seed)
    sums = []
    for block in resampled(size, bootstrap.resamples, generator):
        cells = block + size * np.arange(len(block))[:, None]
        times = np.bincount(cells.ravel(), minlength=block.size).reshape(block.shape)
        sums.append(times @ statistics)
    return np.concatenate(sums)
