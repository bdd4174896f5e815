"""Commands of the pages exist: their configs compose, and options of the others are known."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

import pytest

from captioning.commands.command import HydraCommand
from captioning.commands.main import find_command
from captioning.configuration import compose_config
from captioning.papers.paper_file import load_paper

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
# A fenced block with its language; those without one are commands or what they print.
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OVERVIEW = "captioning --help"
OURS = ("captioning ", "python train.py", "python evaluate.py")
DOORS = {"train.py": "train", "evaluate.py": "evaluate"}
# Configs and plugins that a page has its reader write; tests of these pages run their commands.
READERS_OWN = ("plugins=", "=mine", "=NAME", "=longest")


def commands() -> Iterator[tuple[str, str]]:
    """Each page's commands of ours, a line each, without comments."""
    for page in PAGES:
        for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                if not language and line.startswith(OURS) and not line.startswith(OVERVIEW):
                    yield page.name, " ".join(shlex.split(line, comments=True, posix=False))


COMMANDS = list(commands())


def words_of(command: str) -> list[str]:
    words = [word for word in shlex.split(command) if word not in ("...", "-m")]
    first = DOORS.get(words[1]) if words[0] == "python" else words[1]
    assert first is not None
    return [first, *words[2:]]


def first_of_sweep(override: str) -> str:
    """The first value of ``key=a,b``; lists and mappings stay."""
    return override if re.search(r"[\[{]", override) else override.split(",")[0]


def test_the_pages_have_commands() -> None:
    assert len(COMMANDS) > 100


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[f"{p}: {c}" for p, c in COMMANDS])
def test_a_command_of_a_page_is_understood(page: str, command: str) -> None:
    known, arguments = find_command(words_of(command))
    assert known is not None, f"{page}: no such command"
    if isinstance(known, HydraCommand):
        if not any(own in command for own in READERS_OWN) and "--help" not in arguments:
            compose_config(known.config, [first_of_sweep(argument) for argument in arguments])
        return
    parser = ArgumentParser(exit_on_error=False)
    known.add_arguments(parser)
    options, unknown = parser.parse_known_args(arguments)
    assert not unknown, f"{page}: {unknown}"
    if known.name == "paper" and options.rows:
        assert set(options.rows) <= load_paper(options.paper).runs.keys(), f"{page}: no such run"
