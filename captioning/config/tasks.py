"""Tasks: functions whose typed keyword arguments are the schema of a command's config.

A command calls its task so, and Python calls it with keywords::

    task(**arguments_of(task, config))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from captioning.config.check.check import check_config, signature_of
from captioning.config.check.rules import alternatives


def arguments_of(task: Callable[..., Any], config: DictConfig) -> dict[str, Any]:
    """The arguments of a task from its command's config, whose values are checked.

    Lists are plain, and records of settings (frozen dataclasses) are built. Other groups stay where
    they are in the config: their values are looked up when they are read, and errors of their parts
    name the whole key.

    Args:
        task: takes keywords. Keys that it does not take are for other keys to refer to.
        config: composed.

    Raises:
        ValueError: a line for each wrong value, see `check_config`.
    """
    check_config(config, task)
    hints = signature_of(task).annotations
    return {name: _argument(config[name], hint) for name, hint in hints.items() if name in config}


def _argument(value: Any, hint: Any) -> Any:
    if OmegaConf.is_list(value):
        return OmegaConf.to_container(value, resolve=True)
    records: list[Any] = [kind for kind in alternatives(hint) if is_dataclass(kind)]
    if not records or not OmegaConf.is_dict(value):
        return value
    fields: Any = OmegaConf.to_container(value, resolve=True)
    return records[0](**fields)
