"""Print ``--help`` of commands with a Hydra config, read from files without importing Hydra.

Composing the config would take three times as long, and show the choices of all commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from captioning.commands.command import HydraCommand, shown_examples
from captioning.config.folders import config_folder, user_folder

_OPTIONS = """\
  NAME=CHOICE, KEY=VALUE   set a part or a key; +KEY=VALUE adds one, ~KEY removes it
  --cfg job                show the settings, and do nothing; --resolve fills in what refers
  -m, --multirun           run all combinations of KEY=VALUE,VALUE
  --config-dir FOLDER      further choices of your own; those in ./configs are found, too
  --info searchpath        where choices are looked for; --hydra-help: all of Hydra's options"""


def help_text(command: HydraCommand) -> str:
    """Help of a command: summary, usage, parts with their choices, and keys."""
    import yaml

    path = config_folder() / f"{command.config}.yaml"
    text = path.read_text(encoding="utf-8")
    usage, rest = _head(text.splitlines())
    defaults = yaml.safe_load(text)["defaults"]
    lines = [command.summary, "", "usage:", *(f"  {line}" for line in usage)]
    lines += ["", shown_examples(command)] if command.examples else []
    lines += ["", "options:", _OPTIONS]
    groups = dict(_groups(defaults))
    lines += ["", "config groups with their choices (* marks the default):", *_choices(groups)]
    return "\n".join([*lines, "", "keys:", *_keys(rest)])


def groups_and_keys(config: str) -> tuple[dict[str, list[str]], list[str]]:
    """Config groups with their choices, and the config's own keys."""
    import yaml

    content = yaml.safe_load((config_folder() / f"{config}.yaml").read_text(encoding="utf-8"))
    groups = {name: choices(name.partition("@")[0]) for name, _ in _groups(content["defaults"])}
    return groups, [key for key in content if key not in ("defaults", "hydra")]


def _head(lines: list[str]) -> tuple[list[str], list[str]]:
    """Comment at the beginning of a file, and the rest of the file."""
    first = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    return [line.removeprefix("#").removeprefix(" ") for line in lines[:first]], lines[first:]


def _groups(defaults: Iterable[Any]) -> Iterator[tuple[str, list[str]]]:
    """Groups of a defaults list with their choices, without Hydra's own groups."""
    for entry in defaults:
        if not isinstance(entry, dict):
            continue
        for name, chosen in entry.items():
            name = name.removeprefix("optional ")
            if not name.startswith("override "):
                choices = chosen if isinstance(chosen, list) else [chosen]
                yield name, [str(choice) for choice in choices if choice is not None]


def _choices(groups: dict[str, list[str]]) -> Iterator[str]:
    """One line for a group and for each of its subgroups."""
    for name, chosen in groups.items():
        folder = name.partition("@")[0]
        marked = [f"{choice}*" if choice in chosen else choice for choice in _files(folder)]
        yield _wrapped(name, marked)
        if "@" not in name:
            for subgroup in _folders(folder):
                yield _wrapped(f"  {subgroup}", _files(subgroup))


def _config_folders(further: str | None = None) -> list[Path]:
    named = None if further is None else Path(further)
    return [folder for folder in (config_folder(), named, user_folder()) if folder is not None]


def choices(group: str, further: str | None = None) -> list[str]:
    """All choices of a group, including those in its subfolders.

    Args:
        group: such as ``model``.
        further: the folder of ``--config-dir``.
    """
    names: set[str] = set()
    for folder in _config_folders(further):
        paths = (folder / group).rglob("*.yaml")
        names |= {path.relative_to(folder / group).with_suffix("").as_posix() for path in paths}
    return sorted(names)


def _files(group: str) -> list[str]:
    return sorted(
        {path.stem for folder in _config_folders() for path in (folder / group).glob("*.yaml")}
    )


def _folders(group: str) -> list[str]:
    paths = {path for folder in _config_folders() for path in (folder / group).glob("*/")}
    return sorted({f"{group}/{path.name}" for path in paths})


def _wrapped(name: str, choices: Iterable[str]) -> str:
    import textwrap

    return textwrap.fill(
        ", ".join(choices),
        width=100,
        initial_indent=f"  {name}: ",
        subsequent_indent="      ",
        break_on_hyphens=False,
    )


def _keys(lines: Iterable[str]) -> Iterator[str]:
    """Keys of a file with their comments, as written there."""
    shown = False
    for line in lines:
        if line and not line.startswith((" ", "#")):
            shown = not line.startswith(("defaults:", "hydra:"))
        if line.startswith("#") or (shown and line):
            yield f"  {line}"
