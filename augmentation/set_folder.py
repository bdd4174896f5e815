"""Whose folder it is: a set is made in it, perhaps by several runs, and no other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from captioning.files import read_json, write_json


def claim_folder(folder: Path, settings: Mapping[str, Any]) -> None:
    """Note in a folder what set is in it (``settings.json``).

    Args:
        folder: new, empty, or of the same set.
        settings: plain values that the set depends on.

    Raises:
        ValueError: the folder holds another set, or something else.
        OSError: it cannot be written.
    """
    path, plain = folder / "settings.json", json.loads(json.dumps(settings))
    if path.is_file():
        if read_json(path) != plain:
            raise ValueError(
                f"{folder} holds a set of other settings (settings.json): choose another out=, or "
                "delete the folder"
            )
        return
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty and holds no set: choose another out=")
    write_json(path, plain)
