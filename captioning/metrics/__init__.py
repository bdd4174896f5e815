"""Scores of captions; ``from captioning.metrics import score`` scores any lists."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from captioning.metrics.bootstrap import Bootstrap
    from captioning.metrics.scoring import CaptionScores, score

__all__ = ["score", "CaptionScores", "Bootstrap"]

_MODULES = {"score": "scoring", "CaptionScores": "scoring", "Bootstrap": "bootstrap"}


def __getattr__(name: str) -> Any:
    """A public name, from the module that defines it; one metric alone must not import them all."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
