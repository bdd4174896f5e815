"""Tasks of commands: what their configs are checked against, and calls with such a config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig

from captioning.commands.command import HydraCommand
from captioning.commands.main import COMMANDS
from captioning.commands.settings import SETTINGS
from captioning.config.plugins import locate
from captioning.config.tasks import arguments_of
from tools.assets.__main__ import COMMANDS as MAKERS

# Commands whose config is checked against their task, or a schema of their own.
SCHEMAS = {
    name: command
    for name, command in {**COMMANDS, **MAKERS}.items()
    if isinstance(command, HydraCommand) and not command.checks_itself
}


def schema(name: str) -> Callable[..., Any]:
    """What a command's config is checked against."""
    task = SCHEMAS[name].task
    return locate(task) if isinstance(task, str) else SETTINGS[name]


def call(task: Callable[..., Any], config: DictConfig) -> Any:
    """What a task returns for a config, whose values are checked before."""
    return task(**arguments_of(task, config))
