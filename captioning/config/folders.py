"""Where configs lie, and the user's folders."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def config_folder() -> Path:
    """The project's configs: inside the installed package, or at the top of a checkout.

    Raises:
        FileNotFoundError: neither is there.
    """
    folders = (PACKAGE / "configs", PACKAGE.parent / "configs")
    for folder in folders:
        if (folder / "train.yaml").is_file():
            return folder
    raise FileNotFoundError(
        f"no configs in {folders[0]} or {folders[1]}: the installation is incomplete; "
        "install it again"
    )


def user_folder() -> Path | None:
    """The folder ``configs`` where the command is started, unless it is the project's own."""
    folder = Path.cwd() / "configs"
    return folder if folder.is_dir() and folder.resolve() != config_folder() else None


def own_folder(name: str) -> Path:
    """The user's folder of ``data``, ``models`` and the like: ``CAPTIONING_DATA``, or ``data``."""
    return Path(os.environ.get(f"CAPTIONING_{name.upper()}", name)).expanduser()
