"""Where a command's work is done, by its config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from captioning.config.build import build_part
from captioning.spread.base import AbstractSpread
from captioning.spread.local import Local


def chosen_spread(config: Mapping[str, Any]) -> AbstractSpread:
    """What ``config.spread`` names; without that key this process."""
    return build_part(config["spread"]) if config.get("spread") else Local()
