"""Locate the folders of configs and of the user's data, models and runs."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def shipped_folder(what: str, holds: str, *, installed: str, checkout: str) -> Path:
    """Return a folder of the project, from the installed package or from a checkout.

    Args:
        what: description of the content, for the message.
        holds: glob pattern; the folder must hold a matching file.
        installed, checkout: name of the folder in the package, and in a checkout.

    Raises:
        FileNotFoundError: neither folder exists.
    """
    folders = (PACKAGE / installed, PACKAGE.parent / checkout)
    for folder in folders:
        if any(folder.glob(holds)):
            return folder
    raise FileNotFoundError(
        f"{what} not found in {folders[0]} or {folders[1]}: the installation is incomplete; "
        "install the package again"
    )


def config_folder() -> Path:
    """Return the project's config folder; for errors see `shipped_folder`."""
    return shipped_folder("configs", "train.yaml", installed="configs", checkout="configs")


def user_folder() -> Path | None:
    """Return the folder ``configs`` in the current folder, unless it is the project's own."""
    folder = Path.cwd() / "configs"
    return folder if folder.is_dir() and folder.resolve() != config_folder() else None


def own_folder(name: str) -> Path:
    """Return the user's folder ``name``: the variable ``CAPTIONING_NAME`` if set, or ``name``."""
    return Path(os.environ.get(f"CAPTIONING_{name.upper()}", name)).expanduser()
