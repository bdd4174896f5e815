"""Is one set of captions better than another? A paired bootstrap over images (Koehn, 2004)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

_CHUNK = 4_000_000
NOT_MEANS = ("BLEU",)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """What the bootstrap says of ``after - before``.

    Attributes:
        metric: whose per-image scores were compared.
        mean: mean difference over images.
        low: lower end of the central interval.
        high: upper end.
        confidence: its coverage, such as 0.95.
        p_value: two-sided: twice the share of resampled means on the other side of 0, at most 1.
        num_images: images in both.
    """

    metric: str
    mean: float
    low: float
    high: float
    confidence: float
    p_value: float
    num_images: int


def paired_bootstrap(
    before: Mapping[str, Mapping[str, float]],
    after: Mapping[str, Mapping[str, float]],
    metric: str,
    *,
    generator: np.random.Generator,
    num_resamples: int = 10_000,
    confidence: float = 0.95,
) -> PairedDifference:
    """Resample images with replacement and see how the mean difference of a metric varies.

    The corpus score of CIDEr-D, ROUGE-L and SPICE is this mean; METEOR pools statistics and lies
    close to it. Corpus BLEU is no mean of per-image scores and is refused.

    Args:
        before: ``{image_id: {metric: score}}``, as ``metrics.json`` holds them.
        after: the same images, scored for the other captions.
        metric: such as ``"CIDEr-D"``.
        generator: source of the resamples.
        num_resamples: resampled sets of images.
        confidence: coverage of the interval, in (0, 1).

    Raises:
        ValueError: BLEU, different images, a missing score, or an option out of range.
    """
    _check_options(metric, num_resamples, confidence)
    differences = _differences(before, after, metric)
    means = _resampled_means(differences, num_resamples, generator)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    beyond = min((means <= 0).mean(), (means >= 0).mean())
    return PairedDifference(
        metric=metric,
        mean=float(differences.mean()),
        low=float(low),
        high=float(high),
        confidence=confidence,
        p_value=float(min(1.0, 2 * beyond)),
        num_images=len(differences),
    )


def _check_options(metric: str, num_resamples: int, confidence: float) -> None:
    if metric.upper().startswith(NOT_MEANS):
        raise ValueError(f"corpus {metric} is no mean of per-image scores; compare another metric")
    if not 0 < confidence < 1 or num_resamples < 1:
        raise ValueError(
            f"confidence must be in (0, 1) and num_resamples at least 1: got {confidence} and "
            f"{num_resamples}"
        )


def _differences(
    before: Mapping[str, Mapping[str, float]],
    after: Mapping[str, Mapping[str, float]],
    metric: str,
) -> np.ndarray:
    if before.keys() != after.keys() or not before:
        alone = sorted(before.keys() ^ after.keys())
        example = f", such as {alone[0]!r}" if alone else ""
        raise ValueError(f"both must score the same images: {len(alone)} are in one only{example}")
    image_ids = sorted(before)
    for name, scores in (("before", before), ("after", after)):
        lacking = [image_id for image_id in image_ids if metric not in scores[image_id]]
        if lacking:
            raise ValueError(f"{name} has no {metric} for image {lacking[0]!r}")
    return np.array([after[i][metric] - before[i][metric] for i in image_ids], dtype=np.float64)


def _resampled_means(
    differences: np.ndarray, num_resamples: int, generator: np.random.Generator
) -> np.ndarray:
    size = len(differences)
    rows = max(1, _CHUNK // size)  # bounds the memory at about 32 MB an index block
    means = [
        differences[generator.integers(0, size, (min(rows, num_resamples - start), size))].mean(1)
        for start in range(0, num_resamples, rows)
    ]
    return np.concatenate(means)
