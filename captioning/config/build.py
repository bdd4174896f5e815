"""Build objects from configs: the only module that instantiates ``_target_``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, ListConfig, OmegaConf

from captioning.config.plugins import FILE, check_loadable, located
from captioning.config.setting_error import AbstractSettingError, Setting

Convert = Literal["none", "partial", "object", "all"]
_TARGET, _PARTIAL = "_target_", "_partial_"
_MARKS = (_TARGET, _PARTIAL, "_convert_", "_recursive_")
_ROOT = "root"  # of a data set, which its readers get under other names


def build_part(config: DictConfig, *args: Any, **kwargs: Any) -> Any:
    """Call the object that ``config._target_`` names, with the config's keys as arguments.

    Configs work as with ``hydra.utils.instantiate``: nested components are built first
    (``_recursive_``), ``_convert_`` selects OmegaConf or plain Python containers, ``_partial_``
    returns a partial function, and ``_args_`` are positional. Two details differ. An error of the
    call is not wrapped, because it names the wrong file or key and the remedy. Dataclass objects
    in ``kwargs`` stay objects; Hydra would turn them into configs.

    Args:
        config: ``_target_`` and its arguments.
        *args: further positional arguments.
        **kwargs: further arguments; they override the config's, also ``_convert_``,
            ``_recursive_`` and ``_partial_``.

    Raises:
        ValueError: ``_target_`` does not exist or may not be built (see
            `captioning.config.plugins`), or its arguments are wrong.
        SettingError: raised by the component; its remedy names command-line settings, see `typed`.
    """
    check_loadable(config)
    marks = {key: kwargs.pop(key) for key in list(kwargs) if key.startswith("_")}
    try:
        if not args and not kwargs:
            return _node(_resolved(config, marks))
        part = _node(_resolved(config, marks | {_PARTIAL: True}))
        return partial(part, *args, **kwargs) if config.get(_PARTIAL) else part(*args, **kwargs)
    except TypeError as error:
        raise ValueError(f"cannot build {config.get(_TARGET)}: {error}") from error
    except AbstractSettingError as error:
        raise error.worded(partial(typed, config)) from error


def typed(part: DictConfig, setting: Setting) -> str:
    """Return a setting as typed on the command line, such as ``data.bad_captions=drop``.

    If an argument of ``data.train`` refers to its group, the group's key is returned. A key that
    the config lacks gets a plus. For a run folder, the text names the command that trained it.

    Args:
        part: node with ``_target_`` and its arguments, within a command's config.
        setting: the setting to write out.
    """
    name, group, key = setting.name, part._get_parent(), part._get_full_key(setting.name)
    if isinstance(group, DictConfig) and name in part:
        other = name if name in group else _ROOT
        is_known = other in group and not OmegaConf.is_missing(group, other)
        if is_known and group[other] == part[name]:
            key = group._get_full_key(other)
    elif isinstance(group, DictConfig):
        key = f"+{key}"
    file = (part._get_root()._metadata.resolver_cache or {}).get(FILE)
    where = f" in the command that trained {Path(file).parent}" if file else ""
    return f"{key}={setting.value}{where}"


def _resolved(config: DictConfig, marks: dict[str, Any]) -> DictConfig:
    """Copy a config with all references resolved in the context of the whole config."""
    own = copy.deepcopy(config) if OmegaConf.is_config(config) else OmegaConf.create(config)
    own._set_flag(["allow_objects", "struct", "readonly"], [True, False, False])
    own._set_parent(config._get_parent() if OmegaConf.is_config(config) else None)
    for key, value in marks.items():
        own[key] = value
    OmegaConf.resolve(own)
    return own


def _node(node: Any, convert: Convert = "none", recursive: bool = True) -> Any:
    """Build the value of a config node: nested components first, then the node itself."""
    if isinstance(node, DictConfig | ListConfig) and node._is_none():
        return None
    if isinstance(node, ListConfig):
        built = [_node(item, convert, recursive) for item in node]
        return built if convert != "none" else _of_omegaconf(built, node)
    if not isinstance(node, DictConfig):
        return node
    convert = node.get("_convert_", convert)
    recursive = node.get("_recursive_", recursive)
    if _TARGET in node:
        return _called(node, convert, recursive)
    inner = {key: _node(value, convert, recursive) for key, value in node.items()}
    return inner if convert != "none" else _of_omegaconf(inner, node)


def _of_omegaconf(content: Any, node: Any) -> Any:
    """Convert to OmegaConf containers with a parent, so that they know their full key."""
    config = OmegaConf.create(content, flags={"allow_objects": True})
    config._set_parent(node)
    return config


def _called(node: DictConfig, convert: Convert, recursive: bool) -> Any:
    """Call the target of a component with its arguments, or return the partial function."""
    target, is_partial = located(node[_TARGET]), node.get(_PARTIAL, False)
    if not callable(target):
        raise TypeError(f"{node[_TARGET]} must be a class or function")
    arguments: dict[str, Any] = {}
    for key in node:
        if key in _MARKS or (is_partial and OmegaConf.is_missing(node, key)):
            continue
        value = _node(node[key], convert, recursive) if recursive else node[key]
        arguments[str(key)] = _handed_over(value, convert)
    positional: Sequence[Any] = arguments.pop("_args_", ())
    if is_partial:
        return partial(target, *positional, **arguments)
    return _result(target, positional, arguments, node._get_full_key(None))


def _handed_over(value: Any, convert: Convert) -> Any:
    if convert != "none" and OmegaConf.is_config(value):
        return OmegaConf.to_container(value, resolve=True)
    if OmegaConf.is_config(value):
        value._set_parent(None)  # whoever stores a part does not store the whole config
    return value


def _result(
    target: Callable[..., Any], positional: Sequence[Any], arguments: dict[str, Any], key: str
) -> Any:
    try:
        return target(*positional, **arguments)
    except TypeError as error:
        where = f" ({key})" if key else ""
        raise TypeError(f"{error}{where}") from error
