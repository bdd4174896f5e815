"""Tasks: functions whose typed keyword arguments are the schema of a command's config.

A command calls its task so, and Python calls it with keywords::

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
    """The arguments of a task from its command's config, whose values are checked.

    `captioning.config.ranges.read` documents how groups, parts and lists are converted.

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
            arguments[name] = read(config[name], signature.annotations[name])
        except OmegaConfBaseException as error:
            if name in signature.required or not OmegaConf.is_dict(config._get_node(name)):
                raise ValueError(f"{name}: {str(error).splitlines()[0]}") from error
    return arguments


def recorded(arguments: Mapping[str, Any], *, groups: Sequence[str] = ()) -> dict[str, Any]:
    """The arguments of a task as a card or a run folder holds them: those of its config, plain.

    A config has no key for a group without a choice, and so neither has the record.

    Args:
        arguments: all of them, in the order of the config: ``locals()`` at the task's begin.
        groups: arguments that are groups, which are None without a choice.
    """
    kept = {k: value for k, value in arguments.items() if value is not None or k not in groups}
    return {key: plain(value) for key, value in kept.items()}


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
