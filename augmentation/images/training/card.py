"""The card beside trained weights: what they are, of what data, by which command."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from captioning.data.roster import Roster
from captioning.files import write_json
from captioning.results.run_folder import versions


def write_card(
    folder: Path, *, what: str, rosters: Mapping[str, Roster], config: DictConfig, **more: Any
) -> dict[str, Any]:
    """Write ``card.json``.

    Args:
        folder: of the weights.
        what: a line that says what they are.
        rosters: the data by split.
        config: resolved into the card.
        **more: further plain values, such as losses.

    Returns:
        What was written: the above with versions, command, commit, machine and date.
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
    resolved = OmegaConf.to_container(config, resolve=True)
    origin = versions() | {"command": _command()}
    card = {"what": what, "data": data, "config": resolved, "versions": origin, **more}
    write_json(folder / "card.json", card)
    return card


def _command() -> str:
    """The command as it was given, without the paths of this machine."""
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
