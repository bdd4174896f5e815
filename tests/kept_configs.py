"""The project's config files, parsed once a process: the tests compose hundreds of configs."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.plugins.config_source import ConfigResult


@contextmanager
def kept_configs(folder: Path) -> Iterator[None]:
    """Hydra parses each file of the folder once; files of other folders as always."""
    load = FileConfigSource.load_config

    @functools.cache
    def parsed(path: str, provider: str, name: str) -> ConfigResult:
        return load(FileConfigSource(provider=provider, path=path), name)

    def load_config(source: FileConfigSource, config_path: str) -> ConfigResult:
        if Path(source.path) != folder:
            return load(source, config_path)
        # Hydra edits what it is given.
        return copy.deepcopy(parsed(source.path, source.provider, config_path))

    FileConfigSource.load_config = load_config
    yield
    FileConfigSource.load_config = load
