"""Where configs lie, and the user's folders."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def shipped_folder(what: str, holds: str, *, installed: str, checkout: str) -> Path:
    """A folder of the project: inside the installed package, or at the top of a checkout.

    Args:
        what: its content, for the message.
        holds: pattern of files, one of which is in it.
        installed, checkout: its name in the package, and in a checkout.

    Raises:
        FileNotFoundError: neither is there.
    """
    folders = (PACKAGE / installed, PACKAGE.parent / checkout)
    for folder in folders:
        if any(folder.glob(holds)):
            return folder
    raise FileNotFoundError(
        f"no {what} in {folders[0]} or {folders[1]}: the installation is incomplete; "
        "install it again"
    )


def config_folder() -> Path:
    """The project's configs; for errors see `shipped_folder`."""
    return shipped_folder("configs", "train.yaml", installed="configs", checkout="configs")


def user_folder() -> Path | None:
    """The folder ``configs`` where the command is started, unless it is the project's own."""
    folder = Path.cwd() / "configs"
    return folder if folder.is_dir() and folder.resolve() != config_folder() else None


def own_folder(name: str) -> Path:
    """The user's folder of ``data``, ``models`` and the like: ``CAPTIONING_DATA``, or ``data``."""
    return Path(os.environ.get(f"CAPTIONING_{name.upper()}", name)).expanduser()
