"""Compose configs with Hydra; slow to import.

Hydra searches three folders: the project's configs, ``--config-dir``, and ``configs`` in the
current folder. Users can thus add their own YAML files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf

from captioning.config.folders import config_folder, user_folder
from captioning.config.hydra_bends import let_overrides_fill_empty_mappings, reads_own_configs
from captioning.config.moved import rename_targets
from captioning.config.plugins import OWN_FOLDERS, name_folders, name_targets, targets_in

log = logging.getLogger(__name__)

VERSION_BASE = "1.3"


def compose_config(
    name: str, overrides: Sequence[str] = (), *, return_hydra_config: bool = False
) -> DictConfig:
    """Compose the config of a command with overrides.

    Args:
        name: name of a file in the config folder, such as ``"train"``.
        overrides: overrides as on the command line, such as ``"model=updown_tiny"``.
        return_hydra_config: keep Hydra's own settings, under ``hydra``.

    Raises:
        hydra.errors.HydraException: an unknown choice or key, or an unreadable override.
    """
    with composing():
        config = compose(name, list(overrides), return_hydra_config=return_hydra_config)
    trust(config)
    return config


@contextmanager
def composing() -> Iterator[None]:
    """Let Hydra compose the project's configs within the context; see `own_hydra`."""
    search_user_folder()
    folder = str(config_folder())
    with own_hydra(), initialize_config_dir(folder, version_base=VERSION_BASE):
        yield


@contextmanager
def own_hydra() -> Iterator[None]:
    """Reset Hydra to its initial state within the context, then restore a running instance."""
    hydra = GlobalHydra.instance()
    running, hydra.hydra = hydra.hydra, None
    try:
        yield
    finally:
        GlobalHydra.instance().hydra = running  # Hydra has put a copy in its place


def search_path(config_dir: str | None) -> list[str]:
    """Return the Hydra override that adds the user's ``--config-dir`` to the search path."""
    if config_dir is None:
        return []
    return [f"hydra.searchpath=[{quoted(f'file://{Path(config_dir).resolve()}')}]"]


def setting(key: str, text: object) -> str:
    """Write an override whose text may hold any characters, such as a folder name with brackets."""
    return f"{key}={quoted(text)}"


def quoted(text: object) -> str:
    """Quote a text for Hydra's command line."""
    return QuotedString(text=str(text), quote=Quote.double).with_quotes()


def trust(config: DictConfig) -> None:
    """Allow the components named in a config that the user composed; register its folders."""
    for name, present in rename_targets(config).items():
        log.warning(f"{name} was renamed: write {present} instead")
    name_targets(targets_in(OmegaConf.to_container(config, resolve=False)))
    paths = config.get("paths") or {}
    name_folders(str(paths[key]) for key in OWN_FOLDERS if paths.get(key))


class UserConfigs(SearchPathPlugin):
    """Hydra plugin: search `user_folder` after the project's configs, which take precedence."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the user's config folder, if it exists, to a search path with the project's."""
        folder = user_folder()
        if folder is not None and reads_own_configs(search_path):
            search_path.append("user", f"file://{folder}")


def search_user_folder() -> None:
    """Register the user's config folder with Hydra, and let overrides fill empty mappings."""
    Plugins.instance().register(UserConfigs)
    let_overrides_fill_empty_mappings()
