"""Commands of the pages exist: their configs compose, and options of the others are known."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from captioning.commands.command import HydraCommand
from captioning.commands.main import COMMANDS as OF_PROGRAM
from captioning.commands.main import find_command
from captioning.config.compose import compose_config
from captioning.papers.paper_file import load_paper, paper_names
from captioning.runtime.extras import DISTRIBUTION
from tools.assets.__main__ import COMMANDS as MAKERS

REPOSITORY = Path(__file__).resolve().parent.parent
# Tables of papers are generated; tests/contracts/test_papers.py composes their commands. Examples
# of the generated reference are those of the commands' help, below.
TABLES = {REPOSITORY / "docs" / "papers" / f"{name}.md" for name in paper_names()}
TABLES |= {REPOSITORY / "docs" / "reference" / f"{name}.md" for name in ("commands", "configs")}
PAGES = [
    REPOSITORY / "README.md",
    *sorted(page for page in (REPOSITORY / "docs").rglob("*.md") if page not in TABLES),
]
# A fenced block with its language; those without one are commands or what they print.
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OVERVIEW = "captioning --help"
MAKER = "python -m tools.assets "
OURS = ("captioning ", "python train.py", "python evaluate.py", MAKER)
DOORS = {"train.py": "train", "evaluate.py": "evaluate"}
# Configs and plugins that a page has its reader write; tests of these pages run their commands.
READERS_OWN = ("plugins=", "=mine", "=NAME", "=longest")


def commands() -> Iterator[tuple[str, str]]:
    """Each page's commands of ours, a line each, without comments; indented ones, too."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = [block for language, block in BLOCK.findall(text) if not language]
        blocks += re.findall(r"^    (\S.*)$", BLOCK.sub("", text), re.MULTILINE)
        for block in blocks:
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith(OURS) and not line.startswith(OVERVIEW):
                    yield page.name, " ".join(shlex.split(line, comments=True, posix=False))


def examples() -> Iterator[tuple[str, str]]:
    """Those that each command's help shows."""
    for name, command in OF_PROGRAM.items():
        for example in command.examples:
            yield f"{name} --help", f"captioning {example.partition(' > ')[0]}"


COMMANDS = [*commands(), *examples()]
# A setting of a config within a sentence or a cell. One that begins with a plus adds a key.
SETTING = re.compile(r"(?:^|[\s'])([a-z][\w/@]*\.[\w/@.]*[a-z_]\w*)=")


def settings() -> set[tuple[str, str]]:
    """Pages and the dotted keys that their sentences set."""
    found = set()
    for page in PAGES:
        text = BLOCK.sub("", page.read_text(encoding="utf-8"))
        for span in re.findall(r"`([^`\n]+)`", text):
            found |= {(page.name, key) for key in SETTING.findall(span)}
    return found


def keys_of(content: object, above: str = "") -> set[tuple[str, str]]:
    """All keys of a config, each after the one above it; lists of defaults name some."""
    if isinstance(content, dict):
        own = {(above, part) for key in content for part in str(key).split("@")[-1].split(".")}
        return own.union(*(keys_of(value, str(key)) for key, value in content.items()))
    if isinstance(content, list):
        return set().union(*(keys_of(entry) for entry in content))
    return set()


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
    if command.startswith(MAKER):
        first, *arguments = shlex.split(command.removeprefix(MAKER))
        known = MAKERS.get(f"assets {first}")
    else:
        known, arguments = find_command(words_of(command))
    assert known is not None, f"{page}: no such command"
    if isinstance(known, HydraCommand):
        if not any(own in command for own in READERS_OWN) and "--help" not in arguments:
            settings = known.as_settings([first_of_sweep(argument) for argument in arguments])
            compose_config(known.config, settings)
        return
    parser = ArgumentParser(exit_on_error=False)
    known.add_arguments(parser)
    options, unknown = parser.parse_known_args(arguments)
    assert not unknown, f"{page}: {unknown}"
    if known.name == "paper" and options.rows:
        assert set(options.rows) <= load_paper(options.paper).runs.keys(), f"{page}: no such run"


def test_every_command_shows_examples_of_itself() -> None:
    for name, command in OF_PROGRAM.items():
        at_least = 1 if name == "prepare metrics" else 2  # which takes nothing
        assert len(set(command.examples)) >= at_least, name
        for example in command.examples:
            assert find_command(example.split())[0] is command, example


def test_first_pages_do_not_teach_removal_by_loss() -> None:
    """Removal by plain loss wins nothing back (README's table), so it is no first example."""
    first = {"README.md", "own_photos.md", "own_model.md"}
    taught = [
        (page, word.split("=")[1])
        for page, command in COMMANDS
        for word in shlex.split(command)
        if page in first and word.startswith("curation=")
    ]
    assert {page for page, _ in taught} == first
    for page, policies in taught:
        assert set(policies.split(",")) <= {"track", "recommended"}, page


def test_keys_that_sentences_set_are_keys_of_a_config() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (REPOSITORY / "configs").rglob("*.yaml")]
    known = set().union(*(keys_of(yaml.safe_load(text)) for text in texts))
    assert len(settings()) > 100
    unknown = set()
    for page, setting in settings():
        *_, above, key = setting.split(".")
        # What stands on top of a file may come below any key; hydra.launcher is of other packages.
        if not {(above, key), ("", key)} & known and above != "launcher":
            unknown.add((page, setting))
    assert not unknown, "a key that no config has needs a plus before it"


def test_the_page_of_data_sets_has_all_of_them() -> None:
    page = (REPOSITORY / "docs" / "guides" / "layouts.md").read_text(encoding="utf-8")
    names = {path.stem for path in (REPOSITORY / "configs" / "data").glob("*.yaml")}
    assert len(names) > 20
    assert sorted(name for name in names if f"`{name}`" not in page) == []


def test_nothing_is_installed_by_a_name_that_is_on_no_index() -> None:
    texts = [*PAGES, *(REPOSITORY / "configs").rglob("*.yaml")]
    assert [path.name for path in texts if f"{DISTRIBUTION}[" in path.read_text("utf-8")] == []
