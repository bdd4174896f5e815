"""Curation: track every caption's loss, select the worst samples, edit them, and keep a journal.

Your own training loop needs only the names below. They are imported at first use, without
Lightning, Hydra or transformers unless a name needs them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from curation.adapters.curated_dataset import CuratedDataset, with_rows
    from curation.adapters.curation import Curation
    from curation.adapters.lightning import LightningCuration
    from curation.adapters.losses import per_sample_losses
    from curation.adapters.presets import preset
    from curation.adapters.rosters import make_roster
    from curation.adapters.trainer import TrainerCuration

__all__ = [
    "CuratedDataset",
    "Curation",
    "LightningCuration",
    "TrainerCuration",
    "make_roster",
    "per_sample_losses",
    "preset",
    "with_rows",
]

_MODULES = {
    "Curation": "curation",
    "CuratedDataset": "curated_dataset",
    "LightningCuration": "lightning",
    "TrainerCuration": "trainer",
    "make_roster": "rosters",
    "per_sample_losses": "losses",
    "preset": "presets",
    "with_rows": "curated_dataset",
}


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines the name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"curation.adapters.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
