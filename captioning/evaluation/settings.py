"""Typed keys of ``evaluate.yaml``; classes of parts define their own keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from captioning.config.ranges import (
    AbstractSettings,
    ArgumentsOf,
    Device,
    Name,
    NonNegativeInt,
    PositiveInt,
    Seed,
)
from captioning.training.settings import Data, Entities, Metrics, Part, Paths

EvaluationPrecision = Literal["32-true", "run"]
"""Precision: float32, or the precision that the run was trained and tested in."""
OtherData = Annotated[Mapping[str, Any], ArgumentsOf(Data)]
"""Config of a dataset that replaces the run's; its references resolve to the run's keys."""


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(AbstractSettings):
    """All settings of an evaluation.

    Attributes:
        predictions, run, captioner: the source of captions to score; set exactly one.
        seed: seed of sampling searches and of resamples; None: 0, or the run's seed for its own
            search.
        steps: steps that give a captioner boxes and controls; a run has its own.
    """

    predictions: Name | None
    run: Name | None
    captioner: Name | None = None
    prompt: str | None = None
    template: Mapping[str, Any] | None = None
    missing_references: Literal["error", "drop"] = "error"
    split: Name
    detections: Sequence[Name] | None
    entities: Entities = field(default_factory=Entities)
    imported: Name | None = None
    first_images: PositiveInt | None = None
    seed: Seed | None
    device: Device = "auto"
    precision: EvaluationPrecision = "32-true"
    resamples: NonNegativeInt
    out: Name | None
    accept_changes: bool = False
    plugins: Sequence[Name] = ()
    paths: Paths
    data: Data | None = None
    steps: Mapping[str, Part] = field(default_factory=dict)
    search: Part | None = None
    constraints: Part | None = None
    rerank: Part | None = None
    metrics: Metrics
    extra_metrics: Mapping[str, Part] | None = None
