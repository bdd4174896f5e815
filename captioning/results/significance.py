"""Paired bootstrap over images of the difference between two sets of captions (Koehn, 2004)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from captioning.metrics.bootstrap import resampled

Scores = Mapping[str, Mapping[str, float]]

NOT_MEANS = ("BLEU",)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """Result of the bootstrap of ``after - before``.

    Attributes:
        metric: metric whose per-image scores were compared.
        mean: mean difference over images.
        low: lower end of the central interval.
        high: upper end.
        confidence: coverage of the interval, such as 0.95.
        p_value: two-sided p-value: twice the share of resampled means on the other side of 0, at
            most 1, and at least that of a sign test, 2 ** (1 - ``num_images``).
        num_images: number of images in both sets.
    """

    metric: str
    mean: float
    low: float
    high: float
    confidence: float
    p_value: float
    num_images: int


def paired_bootstrap(
    before: Scores,
    after: Scores,
    metric: str,
    *,
    generator: np.random.Generator,
    num_resamples: int = 10_000,
    confidence: float = 0.95,
) -> PairedDifference:
    """Bootstrap the mean difference of a metric by resampling images with replacement.

    The corpus score of CIDEr-D, ROUGE-L and SPICE is this mean; METEOR pools statistics and lies
    close to it. Corpus BLEU is refused, because it is not a mean of per-image scores.

    Args:
        before: ``{image_id: {metric: score}}``, as ``metrics.json`` holds them.
        after: the same images, scored for the other captions.
        metric: name of the metric, such as ``"CIDEr-D"``.
        generator: source of the resamples.
        num_resamples: number of resamples.
        confidence: coverage of the interval, in (0, 1).

    Raises:
        ValueError: the metric is BLEU, images differ, a score is missing or not finite, or an
            option is out of range.
    """
    _check_options(metric, num_resamples, confidence)
    differences = _differences(before, after, metric)
    means = _resampled_means(differences, num_resamples, generator)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    beyond = min((means <= 0).mean(), (means >= 0).mean())
    smallest = 2.0 ** (1 - len(differences))
    return PairedDifference(
        metric=metric,
        mean=float(differences.mean()),
        low=float(low),
        high=float(high),
        confidence=confidence,
        p_value=round(
            float(min(1.0, max(smallest, 2 * beyond))), 6
        ),  # finer than any resamples are
        num_images=len(differences),
    )


def pool_runs(runs: Sequence[Scores], metric: str) -> dict[str, dict[str, float]]:
    """Mean score of each image over several runs, such as the seeds of one experiment.

    Args:
        runs: ``{image_id: {metric: score}}`` of each run.
        metric: metric to average.

    Raises:
        ValueError: there are no runs, images differ, or a score is missing.
    """
    if not runs:
        raise ValueError("pooling needs at least one run: got none")
    for number, run in enumerate(runs):
        _check_images(runs[0], run, metric, ("run 0", f"run {number}"))
    return {i: {metric: float(np.mean([run[i][metric] for run in runs]))} for i in runs[0]}


def has_means(metric: str) -> bool:
    """Whether a metric's corpus score is, nearly at least, the mean of its per-image scores."""
    return not metric.upper().startswith(NOT_MEANS)


def _check_options(metric: str, num_resamples: int, confidence: float) -> None:
    if not has_means(metric):
        raise ValueError(
            f"corpus {metric} is not a mean of per-image scores; compare another metric"
        )
    if not 0 < confidence < 1 or num_resamples < 1:
        raise ValueError(
            f"confidence must be in (0, 1) and num_resamples at least 1: got {confidence} and "
            f"{num_resamples}"
        )


def _differences(before: Scores, after: Scores, metric: str) -> np.ndarray:
    _check_images(before, after, metric, ("before", "after"))
    image_ids = sorted(before)
    differences = np.array(
        [after[i][metric] - before[i][metric] for i in image_ids], dtype=np.float64
    )
    if not np.isfinite(differences).all():
        image_id = image_ids[int(np.flatnonzero(~np.isfinite(differences))[0])]
        raise ValueError(f"{metric} of image {image_id!r} must be a finite number in both runs")
    return differences


def _check_images(first: Scores, second: Scores, metric: str, names: tuple[str, str]) -> None:
    if first.keys() != second.keys() or not first:
        unshared = sorted(first.keys() ^ second.keys())
        example = f", such as {unshared[0]!r}" if unshared else ""
        raise ValueError(
            f"both must score the same images: {len(unshared)} are in one only{example}"
        )
    for name, scores in zip(names, (first, second), strict=True):
        missing = [i for i in sorted(scores) if not isinstance(scores[i].get(metric), int | float)]
        if missing:
            raise ValueError(f"{name} has no {metric} for image {missing[0]!r}")


def _resampled_means(
    differences: np.ndarray, num_resamples: int, generator: np.random.Generator
) -> np.ndarray:
    blocks = resampled(len(differences), num_resamples, generator)
    return np.concatenate([differences[block].mean(1) for block in blocks])
