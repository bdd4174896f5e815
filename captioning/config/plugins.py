"""Import users' packages, and check which objects a config may name.

A config that the user composes may name objects of the project, of the libraries below, and of
packages listed under ``plugins``. Of libraries only classes are allowed, because functions may
read or write files or run commands; of the project, functions that do so are excluded. The check
catches mistakes; it is not a security boundary.

A run folder may be untrusted. Each object that its config names must be marked with
`captioning.config.loadable`, be a library's optimizer, belong to a user's plugin, or appear in
the user's own config. The check looks at the object, not only its name: modules expose other
modules, as in ``torch.os.system``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from captioning.config.folders import own_folder
from captioning.config.loadable import is_loadable

OWN_FOLDERS = ("data", "cache", "runs", "models")  # keys of configs/paths, and of models kept
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
# Other modules of torch have classes that unpickle files or start processes.
OPEN_OF_TORCH = ("torch.nn", "torch.optim", "torch.distributions")
# Functions in these modules write files, start programs or load other objects.
CLOSED = (
    *(f"captioning.{name}" for name in ("commands", "data.download", "export")),
    *(f"captioning.{name}" for name in ("inference", "metrics.java", "results")),
    *("captioning.config.build", "captioning.config.plugins"),
    *("captioning.runtime.extras", "captioning.runtime.files"),
    *(f"captioning.training.{name}" for name in ("demo", "inputs", "joint_heads", "parts")),
    *("captioning.training.prepare", "captioning.training.run"),
    *("curation.export", "curation.review", "curation.study", "augmentation.set_folder"),
)
WRITING = ("write_", "save", "remove_", "delete_", "put_", "start_", "stop_", "run", "main")
NO_PART = "configs may not build it, because it writes files, runs programs or loads other code"
_TARGET, _REMOTE = "_target_", "trust_remote_code"
FILE = "file"  # in the cache of a config: where it was read from
_plugins: set[str] = set()
_targets: set[str] = set()
_folders: set[str] = set()


def import_plugins(names: Iterable[str]) -> None:
    """Import users' packages, installed or in the current folder, and allow their names.

    Configs may name their classes and functions in ``_target_`` from then on.

    Raises:
        ValueError: a string instead of a list of names.
        ModuleNotFoundError: a package does not exist.
    """
    if isinstance(names, str):
        raise ValueError(f"plugins must be a list: got {names}; write plugins=[{names}]")
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
                f"plugins: no module {name} in {folder} or among installed packages; start the "
                "command in the folder that holds the module, or install it",
                name=name,
            ) from error
        _plugins.add(name.partition(".")[0])


def name_targets(names: Iterable[str]) -> None:
    """Allow the names that the user's own config holds, see `targets_in`."""
    _targets.update(names)


def named_targets() -> tuple[str, ...]:
    """Return the names that `name_targets` allowed in this process."""
    return tuple(sorted(_targets))


def name_folders(folders: Iterable[str]) -> None:
    """Register folders of the user's data, caches and runs."""
    _folders.update(folders)


def data_folders() -> tuple[Path, ...]:
    """Return the user's data, cache and run folders: the defaults and the registered folders."""
    return tuple(sorted({*map(own_folder, OWN_FOLDERS), *map(Path, _folders)}))


def targets_in(config: Any) -> list[str]:
    """Return all ``_target_`` names in a plain config, at any depth."""
    return [str(part[_TARGET]) for part in _parts(config)]


def check_loadable(config: Any) -> None:
    """Raise an error if an untrusted config names an object that is not allowed.

    Args:
        config: plain mappings and lists, or OmegaConf's.

    Raises:
        ValueError: a ``_target_`` that `check_targets` refuses or that is not marked; the message
            names the file, if known, and the key.
    """
    check_targets(config)
    for part in _parts(config):
        target = str(part[_TARGET])
        if target not in _targets and (reason := _danger(target)):
            raise ValueError(f"{_place(part)}{target}: {reason}")


def _danger(target: str) -> str:
    """Return why a run folder may not name an object; empty if it may."""
    found = _found(target)
    if found is None:
        return (
            "this object does not exist: is the run folder of another version, or is a package "
            "missing?"
        )
    # the function's defining module: plugin classes inherit methods that load anything
    package = str(getattr(found, "__module__", "")).partition(".")[0]
    if is_loadable(found) or package in _plugins or _optimizes(found):
        return ""
    return (
        "run folders may name only readers, steps, models, tokenizers, searches, optimizers and "
        "parts of packages allowed by plugins=[...]: do not use this run folder, or replace the "
        "name by one of such a part"
    )


def _optimizes(found: Any) -> bool:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    return isinstance(found, type) and issubclass(found, Optimizer | LRScheduler)


def _place(part: Any) -> str:
    """Return file and key of a config node, as far as OmegaConf knows them."""
    if not hasattr(part, "_get_full_key"):
        return f"{_TARGET}: "
    file = (part._get_root()._metadata.resolver_cache or {}).get(FILE)
    key = part._get_full_key(_TARGET)
    return f"{file}: {key}: " if file else f"{key}: "


def check_targets(config: Any) -> None:
    """Raise an error if a config names an object that no config may name, at any depth.

    Args:
        config: plain mappings and lists, or OmegaConf's.

    Raises:
        ValueError: a ``_target_`` of an unlisted package, or an object that configs may not build.
    """
    for part in _parts(config):
        target = part[_TARGET]
        if part.get(_REMOTE):
            raise ValueError(
                f"{_place(part)}{target}: {_REMOTE} runs code of unknown origin; leave it out"
            )
        package = str(target).partition(".")[0]
        if _is_foreign(package):
            others = _foreign(part)
            raise ValueError(
                f"{_place(part)}{target}: configs may name only objects of {', '.join(PROJECT)}, "
                f"{', '.join(LIBRARIES)}; if {package} is yours or you trust it, add "
                f"plugins=[{','.join(others)}] (report, caption, push, curate export: --plugins "
                f"{' '.join(others)})"
            )
        if reason := _refusal(str(target)):
            raise ValueError(f"{_place(part)}{target}: {reason}")


def _is_foreign(package: str) -> bool:
    return package not in {*PROJECT, *LIBRARIES, *_plugins}


def _foreign(part: Any) -> list[str]:
    """Return all unlisted packages in the whole config around a node, to report them together."""
    whole = part
    if hasattr(part, "_get_root"):
        from omegaconf import OmegaConf

        whole = OmegaConf.to_container(part._get_root(), resolve=False)
    packages = [target.partition(".")[0] for target in targets_in(whole)]
    return list(dict.fromkeys(filter(_is_foreign, packages)))


def _refusal(target: str) -> str:
    """Return why configs may not use a name; empty if they may, or if the import fails."""
    found = _found(target)
    if found is None:
        return ""
    owner = getattr(found, "__self__", None)
    definer = owner if isinstance(owner, type) else found  # a class method is as good as its class
    module = getattr(definer, "__module__", None) or "an unknown module"
    package = module.partition(".")[0]
    if package in _plugins:
        return ""
    if package not in {*PROJECT, *LIBRARIES}:
        return f"{module} defines it; name an object that an allowed package defines itself"
    if package in PROJECT:
        name = target.rpartition(".")[2]
        closed = _is_in(module, CLOSED) or name.startswith(WRITING)
        return NO_PART if closed and not isinstance(definer, type) else ""
    if not isinstance(definer, type):
        return "library functions may run anything; name a class of the library instead"
    closed = package == "torch" and not _is_in(module, OPEN_OF_TORCH)
    return f"of torch, configs may name only {', '.join(OPEN_OF_TORCH)}" if closed else ""


def _is_in(module: str, parents: Iterable[str]) -> bool:
    return any(f"{module}.".startswith(f"{parent}.") for parent in parents)


def _found(target: str) -> Any:
    """Return the object with a dotted name, or None."""
    try:
        return located(target)
    except ImportError:
        return None


def located(name: str) -> Any:
    """Return the object with a dotted name, see `locate`; any failure is an ImportError.

    Raises:
        ImportError: the import fails; the message says what is missing.
    """
    try:
        return locate(name)
    except ImportError:
        raise
    except Exception as error:
        raise ImportError(f"{name} cannot be imported ({error!r})") from error


def locate(name: str) -> Any:
    """Import the object with a dotted name, with the modules that it needs.

    Raises:
        ModuleNotFoundError: a package is not installed.
        AttributeError: a module or class lacks the name; ``name`` and ``obj`` are set.
        ValueError: an empty name.
    """
    path, *rest = name.split(".")
    found: Any = importlib.import_module(path)
    for part in rest:
        path = f"{path}.{part}"
        if isinstance(found, ModuleType) and not hasattr(found, part):
            _import_if_there(path)
        found = getattr(found, part)
    return found


def _import_if_there(module: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:  # of a package that the module needs
            raise


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
