"""The keys of ``evaluate.yaml`` with their types; those of parts stand at their classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

from captioning.ranges import Device, Name, NonNegativeInt, Seed
from captioning.training.settings import Data, Entities, Metrics, Part, Paths


class EvaluateSettings(TypedDict):
    """All keys of an evaluation."""

    predictions: Name | None
    run: Name | None
    split: Name
    detections: Sequence[Name] | None
    entities: NotRequired[Entities]
    imported: NotRequired[Name | None]
    seed: Seed | None
    device: NotRequired[Device]
    resamples: NonNegativeInt
    out: Name | None
    plugins: NotRequired[Sequence[Name]]
    paths: Paths
    data: NotRequired[Data | None]
    search: NotRequired[Part | None]
    constraints: NotRequired[Part | None]
    rerank: NotRequired[Part | None]
    metrics: Metrics
    extra_metrics: NotRequired[Mapping[str, Part] | None]
