"""Pages that are generated from code: ``python .ci/docs_reference.py`` writes them.

`docs/reference/commands.md` has every command with its options or config, and
`docs/reference/configs.md` every config group with its choices.
"""

from __future__ import annotations

import re
import sys
from argparse import SUPPRESS, Action, ArgumentParser, _SubParsersAction
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from captioning.commands.command import HydraCommand  # noqa: E402
from captioning.commands.main import COMMANDS, GROUPS  # noqa: E402

REFERENCE = ROOT / "docs" / "reference"
CONFIGS = ROOT / "configs"
MADE = "<!-- made by python .ci/docs_reference.py -->"


def commands_page() -> str:
    """All commands, by group."""
    lines = ["# Commands", "Look up a command, its options and examples.", "", MADE, ""]
    lines += [
        "`captioning COMMAND --help` prints the same. A command with a config takes `KEY=VALUE`;",
        "`captioning COMMAND --cfg job` prints all keys with their values.",
    ]
    for group, names in GROUPS.items():
        lines += ["", f"## {group[0].upper()}{group[1:]}"]
        for name in names:
            command = COMMANDS[name]
            summary = f"{command.summary[0].upper()}{command.summary[1:].rstrip('.')}."
            lines += ["", f"### `{name}`", summary, "", "```"]
            lines += [*(f"captioning {example}" for example in command.examples), "```"]
            if isinstance(command, HydraCommand):
                lines += [f"Keys: `configs/{command.config}.yaml`."]
            else:
                parser = ArgumentParser(add_help=False)
                command.add_arguments(parser)
                lines += options_of(parser)
    return "\n".join(lines) + "\n"


def options_of(parser: ArgumentParser, before: str = "") -> list[str]:
    """A table of a parser's options; subcommands follow below their names."""
    shown = [action for action in parser._actions if action.help != SUPPRESS]
    own = [action for action in shown if not isinstance(action, _SubParsersAction)]
    own = [action for action in own if "--help" not in action.option_strings]
    lines = []
    if own:
        lines += ["", "| option | what |", "|---|---|"]
        lines += [f"| {before}`{name_of(action)}` | {help_of(action)} |" for action in own]
    for action in shown:
        if isinstance(action, _SubParsersAction):
            for name, below in action.choices.items():
                lines += options_of(below, f"`{name}` ")
    return lines


def name_of(action: Action) -> str:
    """An option as it is typed."""
    if action.option_strings:
        return action.option_strings[-1]
    return str(action.metavar or action.dest).upper().replace("|", "\\|")


def help_of(action: Action) -> str:
    """Its help, without marks of tables and of argparse."""
    text = " ".join((action.help or "").split())
    values = {"default": action.default, "prog": "captioning"}
    return (text % values if "%" in text else text).replace("|", "\\|").replace("<", "&lt;")


def configs_page() -> str:
    """All config groups with their choices."""
    lines = ["# Configs", "Look up what each config group offers.", "", MADE, ""]
    lines += [
        "`GROUP=CHOICE` takes a choice, and `GROUP.KEY=VALUE` sets a key of it. A group below",
        "another has a slash: `curation/score=siblings`. Keys and their comments are in",
        "`configs/GROUP/CHOICE.yaml`; `captioning COMMAND --cfg job` prints the resolved config.",
    ]
    folders = sorted({path.parent for path in CONFIGS.rglob("*.yaml")} - {CONFIGS})
    for folder in folders:
        name = folder.relative_to(CONFIGS).as_posix()
        lines += ["", f"## `{name}`", "", "| choice | what |", "|---|---|"]
        for path in sorted(folder.glob("*.yaml")):
            lines.append(f"| `{path.stem}` | {summary_of(path)} |")
    return "\n".join(lines) + "\n"


def summary_of(path: Path) -> str:
    """The first sentence of a config's comment, or what it builds."""
    text = path.read_text(encoding="utf-8")
    comment = []
    for line in text.splitlines():
        if line.startswith("# @package") or (not line.strip() and not comment):
            continue
        if not line.startswith("#"):
            break
        comment.append(line.lstrip("# "))
    sentence = re.split(r"(?<=[.;]) |:(?: |$)", " ".join(comment))[0].strip().rstrip(";")
    if not sentence:
        content = yaml.safe_load(text)
        target = content.get("_target_", "") if isinstance(content, dict) else ""
        sentence = f"`{target}`" if target else ""
    return sentence.replace("|", "\\|").replace("<", "&lt;")


PAGES = {"commands.md": commands_page, "configs.md": configs_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
