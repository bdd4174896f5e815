"""The keys of ``evaluate.yaml`` with their types; those of parts stand at their classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

from captioning.config.ranges import Device, Name, NonNegativeInt, PositiveInt, Seed
from captioning.training.settings import Data, Entities, Metrics, Part, Paths

EvaluationPrecision = Literal["32-true", "run"]
"""Single precision, or what the run was trained and tested in."""


class EvaluateSettings(TypedDict):
    """All keys of an evaluation."""

    predictions: Name | None
    run: Name | None
    captioner: NotRequired[Name | None]
    prompt: NotRequired[str | None]
    template: NotRequired[Mapping[str, Any] | None]
    missing_references: NotRequired[Literal["error", "drop"]]
    split: Name
    detections: Sequence[Name] | None
    entities: NotRequired[Entities]
    imported: NotRequired[Name | None]
    first_images: NotRequired[PositiveInt | None]
    seed: Seed | None
    device: NotRequired[Device]
    precision: NotRequired[EvaluationPrecision]
    resamples: NonNegativeInt
    out: Name | None
    accept_changes: NotRequired[bool]
    plugins: NotRequired[Sequence[Name]]
    paths: Paths
    data: NotRequired[Data | None]
    search: NotRequired[Part | None]
    constraints: NotRequired[Part | None]
    rerank: NotRequired[Part | None]
    metrics: Metrics
    extra_metrics: NotRequired[Mapping[str, Part] | None]
