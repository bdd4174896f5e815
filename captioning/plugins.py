"""The packages that a config may name, and the import of a user's own.

A config may come from somebody else, with a run folder. So ``_target_`` may only name functions and
classes of the project, of the libraries below and of packages named by ``plugins`` on the command.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PROJECT = ("captioning", "augmentation", "curation")
LIBRARIES = (
    "torch",
    "torchvision",
    "timm",
    "transformers",
    "diffusers",
    "open_clip",
    "pytorch_lightning",
    "hydra",
)
_TARGET = "_target_"
_plugins: set[str] = set()


def import_plugins(names: Iterable[str]) -> None:
    """Import packages of the user's own, from where they are installed or the current folder.

    Their classes and functions may be named by ``_target_`` from then on.

    Raises:
        ModuleNotFoundError: there is no such package.
    """
    for name in names:
        folder = str(Path.cwd())
        if folder not in sys.path:
            sys.path.append(folder)
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            raise ModuleNotFoundError(
                f"plugins: there is no module {name} in {folder}, and none is installed", name=name
            ) from error
        _plugins.add(name.partition(".")[0])


def check_targets(config: Any) -> None:
    """Refuse what a config may not name, at any depth.

    Args:
        config: plain mappings and lists, or OmegaConf's.

    Raises:
        ValueError: a ``_target_`` of another package.
    """
    for target in _targets(config):
        package = str(target).partition(".")[0]
        if package not in {*PROJECT, *LIBRARIES, *_plugins}:
            raise ValueError(
                f"{_TARGET}: {target}: configs may name what {', '.join(PROJECT)} and "
                f"{', '.join(LIBRARIES)} define; if {package} is yours, or you trust it, add "
                f"plugins=[{package}] (curate report and curate export: --plugins {package})"
            )


def _targets(config: Any) -> Iterable[Any]:
    if isinstance(config, Mapping):
        for key, value in config.items():
            if key == _TARGET:
                yield value
            else:
                yield from _targets(value)
    elif isinstance(config, Iterable) and not isinstance(config, str | bytes):
        for value in config:
            yield from _targets(value)
