"""Kinds of subcommands."""

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
_PLAIN = re.compile(r"[A-Za-z_./][\w./-]*", re.ASCII)  # Hydra reads it as text without quotes
_NO_TEXT = {"null", "true", "false", "nan", "inf"}
_WITHOUT_VALUE = {"-m", "--multirun", "--resolve"}  # options of Hydra that no word belongs to
# Takes the whole config.
ConfigTask = Callable[[Any], Any]
# Prints what a task returned, beside its arguments; returns a score for sweepers.
Show = Callable[[Any, Mapping[str, Any]], float | None]


def show_nothing(result: Any, arguments: Mapping[str, Any]) -> None:
    """Print nothing."""


def places(*keys: str, file: str | None = None) -> Callable[[Sequence[str]], list[str]]:
    """Folders that stand without their key, in this order.

    Args:
        keys: keys of the config, such as ``run``.
        file: the key of a first word that names a JSON file.
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
    """The settings of a folder of own photos that is given without keys."""
    return ["data=own", *places("data.root")(words)]


def as_value(text: str) -> str:
    """A text as a value, in quotes where Hydra would read it as anything else."""
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
        config: name of its file in the config folder.
        task: dotted name of a function whose typed keyword arguments are the config's keys (see
            `captioning.config.tasks`); it is imported when the command is called. Or a function of
            the whole config, which checks its values.
        show: prints the task's result.
        check: refuses a config by an error and does nothing else; a sweep of the command checks
            all jobs so before the first begins.
        typed: keys of the config by the names that they have on the command line, where these are
            names of config groups, whose values Hydra would look for among its files.
        words: makes settings of words without ``=``, such as folders; see `places`.
        examples: two at least, without the program's name.
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
        """Arguments with settings in the place of words and of the names that are typed.

        Raises:
            ValueError: too many words, or a key that both a word and a setting give.
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
        """Where words stand: neither settings, options, values of these, nor names of keys."""
        found = []
        for number, text in enumerate(given):
            before = given[number - 1] if number else ""
            is_value = before[:1] == "-" and before not in _WITHOUT_VALUE
            is_setting = not text or text[0] in "-+~" or ("=" in text and not Path(text).exists())
            if not is_value and not is_setting and not self._is_key(text):
                found.append(number)
        return found

    def _is_key(self, word: str) -> bool:
        """Whether the config's file has a key or a group of this name."""
        from captioning.config.folders import config_folder

        text = (config_folder() / f"{self.config}.yaml").read_text(encoding="utf-8")
        return re.search(rf"^(  - )?{re.escape(word)}:", text, re.MULTILINE) is not None

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
        name: the command as typed.
        summary: the purpose in one line.
        add_arguments: adds its options to a parser.
        call: does it and prints; its result is the exit status, None is 0.
        examples: see `HydraCommand`.
        mixed: whether overrides may stand behind options; argparse can't do that beside
            subcommands.
    """

    name: str
    summary: str
    add_arguments: Callable[[ArgumentParser], None]
    call: Callable[[Namespace], int | None]
    examples: tuple[str, ...] = ()
    mixed: bool = False


Command = HydraCommand | PlainCommand


def add_format(parser: ArgumentParser) -> None:
    """Add ``--format text|json``, for commands whose output scripts read."""
    parser.add_argument(
        "--format", choices=("text", "json"), default="text",
        help="json: one JSON object on standard output, all else on standard error (text)",
    )  # fmt: skip


def print_json(answer: Any) -> None:
    """Print an answer for scripts."""
    import json

    json.dump(answer, sys.stdout, indent=1, ensure_ascii=False, default=str)
    sys.stdout.write("\n")


def shown_examples(command: Command) -> str:
    """The examples of a command's help."""
    return "\n".join(["examples:", *(f"  captioning {text}" for text in command.examples)])
