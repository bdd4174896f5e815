"""Tasks of commands: what their configs are checked against, and calls with such a config."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, OmegaConf

from captioning.commands.command import HydraCommand
from captioning.commands.main import COMMANDS
from captioning.config.plugins import locate
from captioning.config.tasks import arguments_of
from tools.assets.__main__ import COMMANDS as MAKERS

# Commands whose config is checked against their task's signature.
SCHEMAS = {
    name: command
    for name, command in {**COMMANDS, **MAKERS}.items()
    if isinstance(command, HydraCommand) and isinstance(command.task, str)
}


def schema(name: str) -> Callable[..., Any]:
    """What a command's config is checked against."""
    return locate(str(SCHEMAS[name].task))


def is_record(kept: Any, config: DictConfig) -> bool:
    """Whether a card or run folder has all settings of a config, in its order."""
    return json.dumps(kept) == json.dumps(OmegaConf.to_container(config, resolve=True))


def call(task: Callable[..., Any], config: DictConfig) -> Any:
    """What a task returns for a config, whose values are checked before."""
    return task(**arguments_of(task, config))
