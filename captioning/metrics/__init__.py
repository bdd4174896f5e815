"""Caption metrics; ``from captioning.metrics import score`` scores any lists of captions."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from captioning.metrics.bootstrap import Bootstrap
    from captioning.metrics.scoring import CaptionScores, score

__all__ = ["score", "CaptionScores", "Bootstrap"]

_MODULES = {"score": "scoring", "CaptionScores": "scoring", "Bootstrap": "bootstrap"}


def __getattr__(name: str) -> Any:
    """Import a public name from its module when it is used, so one metric does not import all."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
