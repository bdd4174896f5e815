"""Hydra's way to a folder ``configs`` of the user's own; imported where a config is composed."""

from __future__ import annotations

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from captioning.configuration import user_folder


class UserConfigs(SearchPathPlugin):
    """Searches `user_folder` after the project's configs, whose names so keep their meaning."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the folder, where there is one."""
        folder = user_folder()
        if folder is not None:
            search_path.append("user", f"file://{folder}")


def search_user_folder() -> None:
    """Have Hydra search the user's folder from now on."""
    Plugins.instance().register(UserConfigs)
