"""The packages that a config may name, and the import of a user's own.

A config may come from somebody else, with a run folder. So ``_target_`` may only name what the
project, the libraries below and packages named by ``plugins`` on the command define: of libraries
classes, as their functions may read files, write them or run commands, and of the project no
function that does. What a name leads to is checked, not the name alone: modules hold other modules,
as in ``torch.os.system``.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
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
)
# The rest of torch has classes that unpickle files and start processes.
OPEN_OF_TORCH = ("torch.nn", "torch.optim", "torch.distributions")
# Functions of these write files, start programs or load other parts.
CLOSED = (
    *(f"captioning.{name}" for name in ("assets", "commands", "extras", "files", "plugins")),
    *(f"captioning.{name}" for name in ("data.download", "exports", "metrics.java", "parts")),
    *(f"captioning.{name}" for name in ("prepare", "results")),
    *(f"captioning.training.{name}" for name in ("demo", "inputs", "parts", "run")),
    *("curation.export", "curation.report", "curation.study", "augmentation.set_folder"),
)
WRITING = ("write_", "save", "remove_", "delete_", "put_", "start_", "stop_", "run", "main")
NO_PART = "it is no part that configs build: it writes files, runs something or loads other parts"
_TARGET, _REMOTE = "_target_", "trust_remote_code"
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
        ValueError: a ``_target_`` of another package, or one that is not for configs.
    """
    for part in _parts(config):
        target = part[_TARGET]
        if part.get(_REMOTE):
            raise ValueError(f"{_TARGET}: {target}: {_REMOTE} runs code of strangers; leave it out")
        package = str(target).partition(".")[0]
        if package not in {*PROJECT, *LIBRARIES, *_plugins}:
            raise ValueError(
                f"{_TARGET}: {target}: configs may name what {', '.join(PROJECT)} and "
                f"{', '.join(LIBRARIES)} define; if {package} is yours, or you trust it, add "
                f"plugins=[{package}] (curate report and curate export: --plugins {package})"
            )
        if reason := _refusal(str(target)):
            raise ValueError(f"{_TARGET}: {target}: {reason}")


def _refusal(target: str) -> str:
    """Why a name is not for configs, or nothing; what cannot be imported is told elsewhere."""
    found = _found(target)
    owner = getattr(found, "__self__", None)
    definer = owner if isinstance(owner, type) else found  # a class method is as good as its class
    module = getattr(definer, "__module__", None) or "nobody knows whom"
    package = module.partition(".")[0]
    if found is None or package in _plugins:
        return ""
    if package not in {*PROJECT, *LIBRARIES}:
        return f"it is defined by {module}; name what a listed package defines itself"
    if package in PROJECT:
        name = target.rpartition(".")[2]
        closed = _is_in(module, CLOSED) or name.startswith(WRITING)
        return NO_PART if closed and not isinstance(definer, type) else ""
    if not isinstance(definer, type):
        return "configs name classes of libraries, as functions may read, write or run anything"
    closed = package == "torch" and not _is_in(module, OPEN_OF_TORCH)
    return f"of torch, configs name what {', '.join(OPEN_OF_TORCH)} define" if closed else ""


def _is_in(module: str, parents: Iterable[str]) -> bool:
    return any(f"{module}.".startswith(f"{parent}.") for parent in parents)


def _found(target: str) -> Any:
    """What a dotted name leads to, or None."""
    parts = target.split(".")
    for size in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:size]))
            return functools.reduce(getattr, parts[size:], module)
        except (ImportError, AttributeError, ValueError):
            continue
    return None


def _parts(config: Any) -> Iterator[Mapping[Any, Any]]:
    if isinstance(config, Mapping):
        if _TARGET in config:
            yield config
        for key, value in config.items():
            if key != _TARGET:
                yield from _parts(value)
    elif isinstance(config, Iterable) and not isinstance(config, str | bytes):
        for value in config:
            yield from _parts(value)
