"""Image captioning: data, models, search, metrics and training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import captioning.config.run_names  # noqa: F401  # configs use its resolver, whichever part reads them
from captioning.runtime.cores import set_up_openmp

if TYPE_CHECKING:
    from captioning.inference.captioner import CaptionedPhoto as CaptionedPhoto
    from captioning.inference.captioner import Captioner as Captioner

__version__ = "0.1.0"

set_up_openmp()  # before torch is imported

# Imported when they are asked for: they take seconds.
_SLOW = ("Captioner", "CaptionedPhoto")


def __getattr__(name: str) -> Any:
    if name not in _SLOW:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from captioning.inference import captioner

    return getattr(captioner, name)
