"""Image captioning: data, models, search, metrics and training.

The names in ``__all__`` are the stable public API. Each is imported at first use, as slow ones take
seconds.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import captioning.config.run_names  # noqa: F401  # configs use its resolver

if TYPE_CHECKING:
    from captioning.inference.captioner import CaptionedPhoto, Captioner
    from captioning.metrics.scoring import score
    from captioning.types import Edit, Sample
    from curation import (
        CuratedDataset,
        Curation,
        LightningCuration,
        TrainerCuration,
        per_sample_losses,
    )
    from curation.base import AbstractAmender, AbstractScore, AbstractSelector
    from curation.check import check
    from curation.loop.policy import CurationPolicy

__version__ = "0.1.0"
__all__ = [
    "AbstractAmender",
    "AbstractScore",
    "AbstractSelector",
    "CaptionedPhoto",
    "Captioner",
    "CuratedDataset",
    "Curation",
    "CurationPolicy",
    "Edit",
    "LightningCuration",
    "Sample",
    "TrainerCuration",
    "check",
    "per_sample_losses",
    "score",
]

_MODULES = {
    "captioning.inference.captioner": ("CaptionedPhoto", "Captioner"),
    "captioning.metrics.scoring": ("score",),
    "captioning.types": ("Edit", "Sample"),
    "curation": (
        *("CuratedDataset", "Curation", "LightningCuration", "TrainerCuration"),
        "per_sample_losses",
    ),
    "curation.base": ("AbstractAmender", "AbstractScore", "AbstractSelector"),
    "curation.check": ("check",),
    "curation.loop.policy": ("CurationPolicy",),
}


def __getattr__(name: str) -> Any:
    """A public name, from the module that defines it."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
