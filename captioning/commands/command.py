"""Kinds of subcommands: with a Hydra config, or with plain options."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

INTERRUPTED = 130  # as shells report a program that Ctrl+C ended
_PLACE = re.compile(r"""https?://[^\s"',()\[\]{}#]+#[^\s"',()\[\]{}]+""")
_PLAIN = re.compile(r"(?!\.\d)[A-Za-z_./][\w./-]*", re.ASCII)  # text that needs no quotes
_NO_TEXT = {"null", "true", "false", "nan", "inf"}
_WITHOUT_VALUE = {"-m", "--multirun", "--resolve"}  # options of Hydra that no word belongs to
# Takes the whole config.
ConfigTask = Callable[[Any], Any]
# Prints what a task returned, beside its arguments; returns a score for sweepers.
Show = Callable[[Any, Mapping[str, Any]], float | None]


def show_nothing(result: Any, arguments: Mapping[str, Any]) -> None:
    """Print nothing."""


def places(*keys: str, file: str | None = None) -> Callable[[Sequence[str]], list[str]]:
    """Parser of folders given without their key, in this order.

    Args:
        keys: keys of the config, such as ``run``.
        file: key for a first word that names a JSON file.
    """

    def settings(words: Sequence[str]) -> list[str]:
        order = list(keys)
        if file is not None and words[0].endswith(".json"):
            order[0] = file
        if len(words) > len(order):
            names = " ".join(key.rpartition(".")[2].upper() for key in keys)
            raise ValueError(
                f"{words[len(order)]} is one argument too many: the command takes {names}"
            )
        return [f"{key}={as_value(word)}" for key, word in zip(order, words, strict=False)]

    return settings


def photos(words: Sequence[str]) -> list[str]:
    """Settings for a folder of the user's own photos given without a key."""
    return ["data=own", *places("data.root")(words)]


def as_value(text: str) -> str:
    """Text as a config value, quoted if Hydra would parse it as anything but text."""
    if _PLAIN.fullmatch(text) and text.lower() not in _NO_TEXT:
        return text
    from captioning.config.compose import quoted

    return quoted(text)


@dataclass(frozen=True, kw_only=True)
class HydraCommand:
    """A subcommand whose settings are a Hydra config.

    Attributes:
        name: the command as typed, such as ``"curate detect"``.
        summary: the purpose in one line.
        config: name of the command's file in the config folder.
        task: dotted name of a function whose typed keyword arguments are the config's keys (see
            `captioning.config.tasks`); it is imported when the command is called. Or a function of
            the whole config, which checks its values.
        show: function that prints the task's result.
        check: function that raises an error for an invalid config; a sweep checks all jobs with it
            before the first starts.
        typed: config keys by their command-line names, for names that are also config groups, which
            Hydra would look up in files.
        words: turns words without ``=``, such as folders, into settings; see `places`.
        examples: at least two examples, without the program's name.
    """

    name: str
    summary: str
    config: str
    task: str | ConfigTask
    show: Show = show_nothing
    check: Callable[[Any], None] | None = None
    typed: Mapping[str, str] = field(default_factory=dict)
    words: Callable[[Sequence[str]], list[str]] | None = None
    examples: tuple[str, ...] = ()

    def as_settings(self, arguments: Sequence[str]) -> list[str]:
        """Arguments with settings in place of words and of command-line names of keys.

        Raises:
            ValueError: there are too many words, or a word and a setting set the same key.
        """
        given = list(arguments)
        if self.words is not None and (found := self._words(given)):
            settings = self.words([given[number] for number in found])
            keys = {text.partition("=")[0] for text in settings}
            if twice := [text for text in given if text.partition("=")[0] in keys]:
                raise ValueError(
                    f"{twice[0]}: {given[found[0]]} already sets this; leave one of them out"
                )
            rest = [text for number, text in enumerate(given) if number not in found]
            given = [*rest[: found[0]], *settings, *rest[found[0] :]]
        return [self.with_key(argument) for argument in given]

    def _words(self, given: Sequence[str]) -> list[int]:
        """Positions of words that are no settings, options, option values or names of keys."""
        found = []
        for number, text in enumerate(given):
            before = given[number - 1] if number else ""
            is_value = before[:1] == "-" and before not in _WITHOUT_VALUE
            is_setting = not text or text[0] in "-+~" or ("=" in text and not Path(text).exists())
            if not is_value and not is_setting and not self._is_key(text):
                found.append(number)
        return found

    def _is_key(self, word: str) -> bool:
        """Whether the config's file has a key or group of this name."""
        from captioning.config.folders import config_folder

        text = (config_folder() / f"{self.config}.yaml").read_text(encoding="utf-8")
        return re.search(rf"^(  - )?{re.escape(word)}:", text, re.MULTILINE) is not None

    def with_key(self, argument: str) -> str:
        """Argument with the config's key in place of its command-line name.

        The address of a served model is quoted, as Hydra's grammar requires for ``#``.
        """
        name, mark, value = argument.partition("=")
        if _PLACE.fullmatch(value):
            argument, value = f'{name}="{value}"', f'"{value}"'
        return f"{self.typed[name]}={value}" if mark and name in self.typed else argument


@dataclass(frozen=True, kw_only=True)
class PlainCommand:
    """Subcommand with plain command-line options.

    Attributes:
        name: name of the command as typed.
        summary: the purpose in one line.
        add_arguments: adds its options to a parser.
        call: function that runs the command; it returns the exit status, None means 0.
        examples: see `HydraCommand`.
        mixed: whether overrides may follow options, which argparse cannot combine with subcommands.
    """

    name: str
    summary: str
    add_arguments: Callable[[ArgumentParser], None]
    call: Callable[[Namespace], int | None]
    examples: tuple[str, ...] = ()
    mixed: bool = False


Command = HydraCommand | PlainCommand


def add_format(parser: ArgumentParser) -> None:
    """Add the option ``--format text|json``, for commands whose output scripts read."""
    parser.add_argument(
        "--format", choices=("text", "json"), default="text",
        help="json: one JSON object on standard output, all else on standard error (text)",
    )  # fmt: skip


def print_json(answer: Any) -> None:
    """Print an answer as JSON, for scripts."""
    import json

    json.dump(answer, sys.stdout, indent=1, ensure_ascii=False, default=str)
    sys.stdout.write("\n")


def shown_examples(command: Command) -> str:
    """Examples section of a command's help."""
    return "\n".join(["examples:", *(f"  captioning {text}" for text in command.examples)])
