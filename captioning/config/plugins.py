"""The packages that a config may name, and the import of a user's own.

A config that the user composes may name objects of the project, of the libraries below and of
packages listed under ``plugins`` on the command line: of libraries classes, as their functions may
read files, write them or run commands, and of the project no function that does. This check catches
mistakes; it is not a security boundary.

A run folder may come from somebody else. Each object that its config names must carry the mark of
`captioning.config.loadable`, be a library's optimizer, belong to a plugin of the user, or appear in
the user's own config. The object behind a name is checked, not the name alone: modules hold other
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
# The rest of torch has classes that unpickle files and start processes.
OPEN_OF_TORCH = ("torch.nn", "torch.optim", "torch.distributions")
# Functions of these write files, start programs or load other parts.
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
NO_PART = "it is no part that configs build: it writes files, runs something or loads other parts"
_TARGET, _REMOTE = "_target_", "trust_remote_code"
FILE = "file"  # in the cache of a config: where it was read from
_plugins: set[str] = set()
_targets: set[str] = set()
_folders: set[str] = set()


def import_plugins(names: Iterable[str]) -> None:
    """Import packages of the user's own, from where they are installed or the current folder.

    Their classes and functions may be named by ``_target_`` from then on.

    Raises:
        ValueError: a text in the place of a list, whose letters would be the names.
        ModuleNotFoundError: the package does not exist.
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
                f"plugins: there is no module {name} in {folder}, and none is installed; start the "
                "command in the folder that holds it, or install it",
                name=name,
            ) from error
        _plugins.add(name.partition(".")[0])


def name_targets(names: Iterable[str]) -> None:
    """Let parts be built that the user's own config names, see `targets_in`."""
    _targets.update(names)


def named_targets() -> tuple[str, ...]:
    """The names that `name_targets` received in this process."""
    return tuple(sorted(_targets))


def name_folders(folders: Iterable[str]) -> None:
    """Note where the user's data, caches and runs lie."""
    _folders.update(folders)


def data_folders() -> tuple[Path, ...]:
    """Where data, caches and runs of the user lie: by configs/paths/default.yaml, and as named."""
    return tuple(sorted({*map(own_folder, OWN_FOLDERS), *map(Path, _folders)}))


def targets_in(config: Any) -> list[str]:
    """All that a config names, at any depth; a plain one, as references are not looked up."""
    return [str(part[_TARGET]) for part in _parts(config)]


def check_loadable(config: Any) -> None:
    """Refuse objects that may not be built, as the config may not be the user's own.

    Args:
        config: plain mappings and lists, or OmegaConf's.

    Raises:
        ValueError: what `check_targets` refuses, or a ``_target_`` that is not marked; names the
            file, where it is known, and the key.
    """
    check_targets(config)
    for part in _parts(config):
        target = str(part[_TARGET])
        if target not in _targets and (reason := _danger(target)):
            raise ValueError(f"{_place(part)}{target}: {reason}")


def _danger(target: str) -> str:
    """Why a run folder may not name something, or nothing."""
    found = _found(target)
    if found is None:
        return (
            "there is no such part: is the folder of another version, or is there a package to "
            "install?"
        )
    # the function's own module: classes of plugins inherit methods that load anything
    package = str(getattr(found, "__module__", "")).partition(".")[0]
    if is_loadable(found) or package in _plugins or _optimizes(found):
        return ""
    return (
        "run folders may name readers, steps, models, tokenizers, searches and optimizers alone, "
        "and parts of packages that you name by plugins=[...]: do not use the folder, or put a "
        "part of that kind in this place"
    )


def _optimizes(found: Any) -> bool:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    return isinstance(found, type) and issubclass(found, Optimizer | LRScheduler)


def _place(part: Any) -> str:
    """File and key of a name, as far as OmegaConf's node knows them."""
    if not hasattr(part, "_get_full_key"):
        return f"{_TARGET}: "
    file = (part._get_root()._metadata.resolver_cache or {}).get(FILE)
    key = part._get_full_key(_TARGET)
    return f"{file}: {key}: " if file else f"{key}: "


def check_targets(config: Any) -> None:
    """Refuse objects that no config may name, at any depth.

    Args:
        config: plain mappings and lists, or OmegaConf's.

    Raises:
        ValueError: a ``_target_`` of another package, or one that is not for configs.
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
                f"{_place(part)}{target}: configs may name what {', '.join(PROJECT)} and "
                f"{', '.join(LIBRARIES)} define; if {package} is yours, or you trust it, add "
                f"plugins=[{','.join(others)}] (report, caption, push, curate export: --plugins "
                f"{' '.join(others)})"
            )
        if reason := _refusal(str(target)):
            raise ValueError(f"{_place(part)}{target}: {reason}")


def _is_foreign(package: str) -> bool:
    return package not in {*PROJECT, *LIBRARIES, *_plugins}


def _foreign(part: Any) -> list[str]:
    """Packages of nobody known that the whole config around a part names, so all at once."""
    whole = part
    if hasattr(part, "_get_root"):
        from omegaconf import OmegaConf

        whole = OmegaConf.to_container(part._get_root(), resolve=False)
    packages = [target.partition(".")[0] for target in targets_in(whole)]
    return list(dict.fromkeys(filter(_is_foreign, packages)))


def _refusal(target: str) -> str:
    """Why configs may not use a name, or an empty text; import errors are reported elsewhere."""
    found = _found(target)
    if found is None:
        return ""
    owner = getattr(found, "__self__", None)
    definer = owner if isinstance(owner, type) else found  # a class method is as good as its class
    module = getattr(definer, "__module__", None) or "nobody knows whom"
    package = module.partition(".")[0]
    if package in _plugins:
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
    try:
        return located(target)
    except ImportError:
        return None


def located(name: str) -> Any:
    """What `locate` finds; whatever a module raises while it is imported is an ImportError.

    Raises:
        ImportError: nothing; says what is missing.
    """
    try:
        return locate(name)
    except ImportError:
        raise
    except Exception as error:
        raise ImportError(f"{name} cannot be imported ({error!r})") from error


def locate(name: str) -> Any:
    """The object that a dotted name refers to: modules are imported as far as there are any.

    Raises:
        ModuleNotFoundError: a package is not installed.
        AttributeError: a module or class has no such name; ``name`` and ``obj`` are set.
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
