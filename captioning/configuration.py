"""Where configs lie, and how one is composed of them.

Three places are searched: the configs of the project, ``--config-dir``, and a folder ``configs``
where the command is started. So a user's own YAML files stand beside the project's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omegaconf import DictConfig

PACKAGE = Path(__file__).resolve().parent
VERSION_BASE = "1.3"


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
        f"no configs in {folders[0]} or {folders[1]}: the installation is incomplete; install anew"
    )


def user_folder() -> Path | None:
    """The folder ``configs`` where the command is started, unless it is the project's own."""
    folder = Path.cwd() / "configs"
    return folder if folder.is_dir() and folder.resolve() != config_folder() else None


def compose_config(name: str, overrides: Sequence[str] = ()) -> DictConfig:
    """The config that a command with these overrides has.

    Args:
        name: of a file in the config folder, such as ``"train"``.
        overrides: as on the command line, such as ``"model=updown_tiny"``.

    Raises:
        hydra.errors.HydraException: an unknown choice or key, or an override that cannot be read.
    """
    from hydra import compose, initialize_config_dir

    from captioning.config_search import search_user_folder

    search_user_folder()
    with initialize_config_dir(str(config_folder()), version_base=VERSION_BASE):
        return compose(name, overrides=list(overrides))
