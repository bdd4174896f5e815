"""Compute the standard scores and any further metrics of a set of captions in one call.

The standard scores (`captioning.metrics.coco`) use the first caption of each image. Further
metrics read all captions of an image and the dataset's annotations, and add their scores to
the same result under separate names.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from statistics import fmean
from typing import Any, ClassVar, Protocol

from captioning.metrics.bootstrap import Bootstrap, intervals, pooled_mean
from captioning.metrics.coco import MetricResult, evaluate_captions
from captioning.types import Sample

Captions = Mapping[str, Sequence[str]]


class CaptionedImages(Protocol):
    """Protocol of images with captions, such as `captioning.data.roster.Roster`."""

    @property
    def samples(self) -> Sequence[Sample]:
        """All captions of the images, as samples."""
        ...

    def references(self) -> dict[str, list[str]]:
        """Return the reference captions by image id."""
        ...


class AbstractMetric(ABC):
    """Base class of metrics besides the standard scores.

    Attributes:
        min_captions: minimum number of captions per image.
    """

    min_captions: ClassVar[int] = 1

    def check_ready(self) -> None:
        """Check required services or files before captions are generated.

        Raises:
            ConnectionError, ValueError: the metric cannot run.
        """
        return None

    @abstractmethod
    def score(self, captions: Captions, images: CaptionedImages) -> MetricResult:
        """Score captions.

        Args:
            captions: one or more captions per image, best first.
            images: the images, with captions, photos and boxes; may include others.

        Returns:
            Scores with names that no other metric uses; ``per_image`` may be empty.

        Raises:
            ValueError: the captions or the dataset lack inputs of the metric.
        """


def evaluate_all(
    captions: Captions,
    images: CaptionedImages,
    *,
    extra: Mapping[str, AbstractMetric] | None = None,
    decoding: Mapping[str, Any] | None = None,
    bootstrap: Bootstrap | None = None,
    **standard: Any,
) -> MetricResult:
    """Score the first caption of every image, and all captions with further metrics.

    Args:
        captions: one or more captions per image, best first.
        images: the images, with their references; may include others.
        extra: further metrics by the name under which the result stores their settings.
        decoding: settings of the search that generated the captions, stored with the scores;
            None: unknown.
        bootstrap: settings of intervals, see `captioning.metrics.coco.evaluate_captions`; scores
            of further metrics get an interval if they are means over images.
        **standard: options of `captioning.metrics.coco.evaluate_captions`.

    Returns:
        All scores in one result; ``settings`` has ``decoding`` and an entry per further metric.

    Raises:
        ValueError: an image without captions, two metrics with the same score name, or an
            error of a metric.
    """
    empty = [image_id for image_id, group in captions.items() if not group]
    if empty:
        raise ValueError(f"{len(empty)} images have no caption, such as {empty[0]!r}")
    first = {image_id: group[0] for image_id, group in captions.items()}
    result = evaluate_captions(first, images.references(), bootstrap=bootstrap, **standard)
    result = replace(result, settings=result.settings | {"decoding": decoding})
    return with_further(result, captions, images, extra=extra, bootstrap=bootstrap)


def with_further(
    result: MetricResult,
    captions: Captions,
    images: CaptionedImages,
    *,
    extra: Mapping[str, AbstractMetric] | None,
    bootstrap: Bootstrap | None = None,
) -> MetricResult:
    """Add the scores of further metrics to the standard scores; see `evaluate_all`."""
    for name, metric in (extra or {}).items():
        scored = _checked(metric.score(captions, images), f"{name} ({type(metric).__qualname__})")
        result = _joined(result, scored, name)
        if bootstrap is not None:
            ends = mean_intervals(scored, list(captions), bootstrap)
            result = replace(result, intervals=result.intervals | ends)
    return result


def _checked(result: Any, name: str) -> MetricResult:
    """Return a metric's scores as plain numbers; non-finite scores become missing.

    Raises:
        ValueError: the metric did not return scores by name.
    """
    if not isinstance(result, MetricResult):
        raise ValueError(
            f"extra metric {name} must return a captioning.metrics.coco.MetricResult: got "
            f"{type(result).__name__}"
        )
    corpus = {key: _number(value, f"{name}: {key}") for key, value in result.corpus.items()}
    unknown = {key: f"{name} gave {value}" for key, value in corpus.items() if not isfinite(value)}
    per_image = {
        image_id: {key: _number(value, f"{name}: {key}") for key, value in scores.items()}
        for image_id, scores in result.per_image.items()
    }
    missing = {**result.settings.get("missing", {}), **unknown}
    return replace(
        result,
        corpus=_finite(corpus),
        per_image={image_id: _finite(scores) for image_id, scores in per_image.items()},
        settings={**result.settings, "missing": missing},
    )


def _finite(scores: Mapping[str, float]) -> dict[str, float]:
    return {name: score for name, score in scores.items() if isfinite(score)}


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"extra metric {name} must return numbers: got {type(value).__name__}"
        ) from error


def mean_intervals(
    result: MetricResult, image_ids: Sequence[str], bootstrap: Bootstrap
) -> dict[str, tuple[float, float]]:
    """Compute intervals for scores that are means over all images, up to rounding."""
    parts = []
    for name, score in result.corpus.items():
        column = [result.per_image.get(image_id, {}).get(name, math.nan) for image_id in image_ids]
        if math.isclose(fmean(column), score, rel_tol=1e-9, abs_tol=1e-12):  # never if one lacks it
            parts.append(pooled_mean(name, column))
    return intervals(parts, bootstrap)


def _joined(result: MetricResult, extra: MetricResult, name: str) -> MetricResult:
    duplicates = sorted(result.corpus.keys() & extra.corpus.keys())
    if duplicates or name in result.settings:
        raise ValueError(f"extra metric {name!r} repeats the score names {duplicates}; rename them")
    per_image = {
        image_id: scores | extra.per_image.get(image_id, {})
        for image_id, scores in result.per_image.items()
    }
    settings = dict(extra.settings)
    missing = result.missing | settings.pop("missing", {})
    return replace(
        result,
        corpus=result.corpus | extra.corpus,
        per_image=per_image,
        settings=result.settings | {name: settings, "missing": missing},
    )
