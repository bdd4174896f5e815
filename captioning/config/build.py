"""The one place where configs become objects."""

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

    A config has the same meaning as for ``hydra.utils.instantiate``: parts within it are built
    first (``_recursive_``), ``_convert_`` says whether other mappings and lists are handed over as
    OmegaConf's or as plain ones, ``_partial_`` gives a function of further arguments, and
    ``_args_`` are positional. Two things differ. The call's error comes through, as it names the
    file or key that was wrong and the remedy. Parts that are built already are handed over as they
    are, where Hydra turns those that are dataclasses into configs.

    Args:
        config: ``_target_`` and its arguments.
        *args: further positional arguments.
        **kwargs: further arguments; they override the config's. ``_convert_``, ``_recursive_`` and
            ``_partial_`` stand in the place of the config's.

    Raises:
        ValueError: ``_target_`` names nothing, or an object that may not be built (see
            `captioning.config.plugins`), or its arguments do not fit.
        SettingError: of the part; its settings are worded as they are typed, see `typed`.
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
    """A part's argument as it is typed on the command line.

    An argument of ``data.train`` that comes from its group is ``data.bad_captions``, and one that
    the config has not is added by a plus. Of a run folder, the command that trained it takes it.

    Args:
        part: node with ``_target_`` and its arguments, within the config of a command.
        setting: setting that the part names.
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
    """A copy in its place among other settings, with all references looked up."""
    own = copy.deepcopy(config) if OmegaConf.is_config(config) else OmegaConf.create(config)
    own._set_flag(["allow_objects", "struct", "readonly"], [True, False, False])
    own._set_parent(config._get_parent() if OmegaConf.is_config(config) else None)
    for key, value in marks.items():
        own[key] = value
    OmegaConf.resolve(own)
    return own


def _node(node: Any, convert: Convert = "none", recursive: bool = True) -> Any:
    """What a part of a config stands for, the parts within it built before."""
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
    """Mappings and lists as OmegaConf's, which know where they stand."""
    config = OmegaConf.create(content, flags={"allow_objects": True})
    config._set_parent(node)
    return config


def _called(node: DictConfig, convert: Convert, recursive: bool) -> Any:
    """The result of the call that a part asks for, or the call itself with these arguments."""
    target, is_partial = located(node[_TARGET]), node.get(_PARTIAL, False)
    if not callable(target):
        raise TypeError(f"{node[_TARGET]} is not a class or function")
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
