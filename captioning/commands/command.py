"""Kinds of subcommands."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

INTERRUPTED = 130  # as shells report a program that Ctrl+C ended
_PLACE = re.compile(r"""https?://[^\s"',()\[\]{}#]+#[^\s"',()\[\]{}]+""")
# Takes the whole config, prints what came out, returns a score for sweepers.
ConfigTask = Callable[[Any], float | None]
# Prints what a task returned, beside its arguments; returns a score for sweepers.
Show = Callable[[Any, Mapping[str, Any]], float | None]


def show_nothing(result: Any, arguments: Mapping[str, Any]) -> None:
    """Print nothing."""


@dataclass(frozen=True, kw_only=True)
class HydraCommand:
    """A subcommand whose settings are a Hydra config.

    Attributes:
        name: as it is typed, such as ``"curate detect"``.
        summary: what it does, in a line.
        config: name of its file in the config folder.
        task: dotted name of a function whose typed keyword arguments are the config's keys (see
            `captioning.config.tasks`); it is imported when the command is called. Or a function of
            the whole config, which checks its values.
        show: prints what the named function returned.
        check: refuses a config by an error and does nothing else; a sweep of the command checks
            all jobs so before the first begins.
        typed: keys of the config by the names that they have on the command line, where these are
            names of config groups, whose values Hydra would look for among its files.
        words: makes settings of words without ``=``, which stand before the first option.
    """

    name: str
    summary: str
    config: str
    task: str | ConfigTask
    show: Show = show_nothing
    check: Callable[[Any], None] | None = None
    typed: Mapping[str, str] = field(default_factory=dict)
    words: Callable[[Sequence[str]], list[str]] | None = None

    def as_settings(self, arguments: Sequence[str]) -> list[str]:
        """Arguments with settings in the place of words and of the names that are typed."""
        given, words = list(arguments), []
        if self.words is not None:
            end = next((n for n, text in enumerate(given) if text[:1] == "-"), len(given))
            words = [text for text in given[:end] if "=" not in text and text[:1].isalnum()]
            given = [text for text in given[:end] if text not in words] + given[end:]
            given = self.words(words) + given if words else given
        return [self.with_key(argument) for argument in given]

    def with_key(self, argument: str) -> str:
        """An argument with the config's key in the place of the name that is typed for it.

        The place of a served model gets quotes, as a ``#`` needs them in Hydra's grammar.
        """
        name, mark, value = argument.partition("=")
        if _PLACE.fullmatch(value):
            argument, value = f'{name}="{value}"', f'"{value}"'
        return f"{self.typed[name]}={value}" if mark and name in self.typed else argument


@dataclass(frozen=True, kw_only=True)
class PlainCommand:
    """A subcommand with options.

    Attributes:
        name: as it is typed.
        summary: what it does, in a line.
        add_arguments: adds its options to a parser.
        call: does it and prints; what it returns is the exit status, None is 0.
        mixed: whether overrides may stand behind options; argparse can't do that beside
            subcommands.
    """

    name: str
    summary: str
    add_arguments: Callable[[ArgumentParser], None]
    call: Callable[[Namespace], int | None]
    mixed: bool = False


Command = HydraCommand | PlainCommand
