"""The model card of trained weights: description, data and training command."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from augmentation.set_folder import CARD
from captioning.data.roster import Roster
from captioning.results.versions import versions
from captioning.runtime.files import write_json


def write_card(
    folder: Path,
    *,
    description: str,
    rosters: Mapping[str, Roster],
    settings: Mapping[str, Any],
    **more: Any,
) -> dict[str, Any]:
    """Write ``card.json`` of trained weights.

    Args:
        folder: folder of the weights.
        description: description of the weights, in a line; the card's key ``what``.
        rosters: the data by split.
        settings: plain ones, the card's key ``config``.
        **more: further plain values, such as losses.

    Returns:
        The card: the above with versions, command, commit, machine and date.
    """
    data = {
        split: {
            "name": roster.name,
            "photos": len(roster.rows_by_image),
            "captions": len(roster),
            "fingerprint": roster.fingerprint,
        }
        for split, roster in rosters.items()
    }
    origin = versions() | {"command": _command()}
    card = {"what": description, "data": data, "config": dict(settings), "versions": origin, **more}
    write_json(folder / CARD, card)
    return card


def _command() -> str:
    """Command line of this process, without machine-specific paths."""
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
