"""Image captioning: data, models, search, metrics and training.

The names in ``__all__`` are the stable public API. Python imports each name at its first use, as
some imports take seconds.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import captioning.config.run_names  # noqa: F401  # configs use its resolver

if TYPE_CHECKING:
    from captioning.commands.from_python import augment, evaluate, train
    from captioning.commands.training import TrainedRun
    from captioning.evaluation.run import Evaluation
    from captioning.inference.captioner import Captioner
    from captioning.metrics.scoring import CaptionScores, score
    from captioning.types import CaptionedPhoto, Edit, Prediction, Sample
    from curation import (
        CuratedDataset,
        Curation,
        LightningCuration,
        TrainerCuration,
        per_sample_losses,
    )
    from curation.base import Amender, Score, Selector
    from curation.check import check
    from curation.check.result import CheckResult
    from curation.loop.policy import Policy

__version__ = "0.1.0"
__all__ = [
    "Amender",
    "CaptionScores",
    "CaptionedPhoto",
    "Captioner",
    "CheckResult",
    "CuratedDataset",
    "Curation",
    "Edit",
    "Evaluation",
    "LightningCuration",
    "Policy",
    "Prediction",
    "Sample",
    "Score",
    "Selector",
    "TrainedRun",
    "TrainerCuration",
    "augment",
    "check",
    "evaluate",
    "per_sample_losses",
    "score",
    "train",
]

_MODULES = {
    "captioning.commands.from_python": ("augment", "evaluate", "train"),
    "captioning.commands.training": ("TrainedRun",),
    "captioning.evaluation.run": ("Evaluation",),
    "captioning.inference.captioner": ("Captioner",),
    "captioning.metrics.scoring": ("CaptionScores", "score"),
    "captioning.types": ("CaptionedPhoto", "Edit", "Prediction", "Sample"),
    "curation": (
        *("CuratedDataset", "Curation", "LightningCuration", "TrainerCuration"),
        "per_sample_losses",
    ),
    "curation.base": ("Amender", "Score", "Selector"),
    "curation.check": ("check",),
    "curation.check.result": ("CheckResult",),
    "curation.loop.policy": ("Policy",),
}


def __getattr__(name: str) -> Any:
    """A public name, from the module that defines it."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
