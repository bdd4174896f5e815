"""Call tasks: functions whose typed keyword arguments define the schema of a command's config.

A command calls a task like this; Python code passes keywords::

    task(**arguments_of(task, config))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from captioning.config.check.check import check_config, signature_of
from captioning.config.ranges import AbstractSettings, read


def arguments_of(task: Callable[..., Any], config: DictConfig) -> dict[str, Any]:
    """Convert a command's config to the arguments of its task, and check the values.

    `captioning.config.ranges.read` documents how groups, parts and lists are converted.

    Args:
        task: function with keyword arguments. Other keys of the config only serve references.
        config: composed config. If the references of a group with a default cannot be resolved,
            the argument gets its default: the group belongs to other uses of the task.

    Raises:
        ValueError: one line per wrong value, see `check_config`.
    """
    check_config(config, task)
    signature, arguments = signature_of(task), {}
    for name in signature.annotations.keys() & {str(key) for key in config}:
        try:
            arguments[name] = read(config[name], signature.annotations[name])
        except OmegaConfBaseException as error:
            if name in signature.required or not OmegaConf.is_dict(config._get_node(name)):
                raise ValueError(f"{name}: {str(error).splitlines()[0]}") from error
    return arguments


def recorded(arguments: Mapping[str, Any], *, groups: Sequence[str] = ()) -> dict[str, Any]:
    """Return a task's arguments as plain values in config order, for a card or a run folder.

    Groups without a choice have no key in the config, so the record leaves them out, too.

    Args:
        arguments: all arguments in the order of the config: ``locals()`` at the start of the task.
        groups: names of arguments that are groups, None without a choice.
    """
    kept = {k: value for k, value in arguments.items() if value is not None or k not in groups}
    return {key: plain(value) for key, value in kept.items()}


def plain(value: Any) -> Any:
    """Convert settings to plain mappings, lists and values with resolved references.

    Groups read from a config keep its keys in order; groups made in Python have all keys.
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
