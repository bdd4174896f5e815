"""Image captioning: data, models, search, metrics and training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import captioning.run_names  # noqa: F401  # configs use its resolver, whichever part reads them

if TYPE_CHECKING:
    from captioning.exports.captioner import Captioner

__version__ = "0.1.0"


def load(folder: Any, **options: Any) -> Captioner:
    """A captioner from a run folder or an export, see `captioning.exports.captioner.load`."""
    from captioning.exports.captioner import load as load_captioner  # slow, and needed here only

    return load_captioner(folder, **options)
