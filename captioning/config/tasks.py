"""Tasks: functions whose typed keyword arguments are the schema of a command's config.

A command calls its task so, and Python calls it with keywords::

    task(**arguments_of(task, config))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from captioning.config.check.check import check_config, signature_of
from captioning.config.check.rules import alternatives, unwrapped
from captioning.config.ranges import AbstractSettings, is_group


def arguments_of(task: Callable[..., Any], config: DictConfig) -> dict[str, Any]:
    """The arguments of a task from its command's config, whose values are checked.

    Lists are plain, and records of settings (frozen dataclasses) are built. Other groups stay where
    they are in the config: their values are looked up when they are read, and errors of their parts
    name the whole key.

    Args:
        task: takes keywords. Keys that it does not take are for other keys to refer to.
        config: composed. Where references of a group with a default cannot be resolved, the
            argument has its default: the group is for other uses of the task.

    Raises:
        ValueError: a line for each wrong value, see `check_config`.
    """
    check_config(config, task)
    signature, arguments = signature_of(task), {}
    for name in signature.annotations.keys() & {str(key) for key in config}:
        try:
            arguments[name] = _argument(config[name], signature.annotations[name])
        except OmegaConfBaseException as error:
            if name in signature.required or not OmegaConf.is_dict(config._get_node(name)):
                raise ValueError(f"{name}: {str(error).splitlines()[0]}") from error
    return arguments


def _argument(value: Any, hint: Any) -> Any:
    if OmegaConf.is_list(value):
        return OmegaConf.to_container(value, resolve=True)
    if not OmegaConf.is_dict(value):
        return value
    kinds: list[Any] = [unwrapped(member)[0] for member in alternatives(hint)]
    for kind in kinds:
        if is_group(kind):
            return kind.of(value)
        if is_dataclass(kind):
            build: Any = kind
            return build(**plain(value))
    return value


def plain(value: Any) -> Any:
    """Settings as a file holds them: mappings, lists and values, all references looked up.

    A group of settings has the keys of its config, in their order; one that Python made has all.
    """
    if OmegaConf.is_config(value):
        return OmegaConf.to_container(value, resolve=True)
    if isinstance(value, AbstractSettings):
        values = {**vars(value), **value.further}
        return {key: plain(values[key]) for key in value.order or (*value.known(), *value.further)}
    if isinstance(value, Mapping):
        return {str(key): plain(content) for key, content in value.items()}
    if isinstance(value, list | tuple):
        return [plain(content) for content in value]
    return value
