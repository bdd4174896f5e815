"""The command ``captioning``: find the subcommand and run it."""

from __future__ import annotations

import difflib
import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module

import captioning
from captioning.commands.command import (
    INTERRUPTED,
    Command,
    HydraCommand,
    PlainCommand,
    shown_examples,
)
from captioning.commands.quick_imports import import_torchmetrics_late
from captioning.config.hydra_bends import FULL_ERROR
from captioning.runtime.cores import keep_freed_memory, set_up_openmp

# Commands by the module and the name there, which is imported when the command is called.
GROUPS: Mapping[str, Mapping[str, str]] = {
    "captioners": {
        "caption": "caption.CAPTION",
        "app": "app.APP",
        "train": "training.TRAIN",
        "evaluate": "evaluation.EVALUATE",
        "compare": "evaluation.COMPARE",
        "demo": "training.DEMO",
        "find-lr": "training.FIND_LR",
        "train-space": "training.TRAIN_SPACE",
        "export": "evaluation.EXPORT",
        "push": "hub.PUSH",
        "convert": "convert.CONVERT",
    },
    "data and curation": {
        "check": "check.CHECK",
        "prepare": "data.PREPARE",
        "prepare metrics": "data.PREPARE_METRICS",
        "find-objects": "data.FIND_OBJECTS",
        "import-features": "data.IMPORT_FEATURES",
        "curate detect": "curation.DETECT",
        "curate score": "curation.SCORE",
        "curate capfilt": "curation.CAPFILT",
        "curate export": "curation.EXPORT",
        "curate apply": "apply.APPLY",
        "curate journal": "journal.JOURNAL",
        "curate study": "study.STUDY",
        "curate suspects": "suspects.SUSPECTS",
        "curate corrections": "suspects.CORRECTIONS",
        "miniworld sheet": "data.MINIWORLD_SHEET",
        "miniworld facts": "data.MINIWORLD_FACTS",
    },
    "augmentation": {
        "augment": "augmentation.AUGMENT",
        "augment captioned": "augmentation.CAPTIONED",
        "augment teach": "augmentation.TEACH",
        "augment compare": "augmentation.COMPARE",
        "augment pictures": "augmentation.PICTURES",
        "augment round-trip": "augmentation.ROUND_TRIP",
        "augment fine-tune": "augmentation.FINE_TUNE",
    },
    "results": {
        "report": "report.REPORT",
        "table": "results.TABLE",
        "record": "results.RECORD",
        "paper": "paper.PAPER",
        "assess": "evaluation.ASSESS",
        "controllability": "evaluation.CONTROLLABILITY",
        "diverse-captions": "evaluation.DIVERSE_CAPTIONS",
        "image-distance": "evaluation.IMAGE_DISTANCE",
        "docs": "docs.DOCS",
        "completion": "completion.COMPLETION",
    },
}
# Commands of earlier versions; makers of what is shipped need a checkout.
_MAKERS = ("captioner", "caption-parser", "parser-captions", "parser-accuracy", "entity-names")
_MAKERS += ("unseen-photos", "autoencoder", "diffusion")
RENAMED = {
    "curate report": "captioning report",
    "assets": "python -m tools.assets",
    "assets joint-space": "captioning train-space",
    "assets fine-tuning": "captioning augment fine-tune",
    **{f"assets {name}": f"python -m tools.assets {name}" for name in _MAKERS},
}
HELP = {"-h", "--help"}
WRONG_USAGE = 2  # as argparse ends


class _Commands(Mapping[str, Command]):
    """All commands by name, imported on first use."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> Command:
        module, attribute = self._places[name].split(".")
        return getattr(import_module(f"captioning.commands.{module}"), attribute)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


COMMANDS = _Commands({name: place for group in GROUPS.values() for name, place in group.items()})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand.

    Args:
        arguments: arguments after ``captioning``; None: those of the program.

    Returns:
        The exit status: 0, 1 after an error (printed in one line), 2 after wrong usage, 130 after
            Ctrl+C.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    set_up_openmp()  # before torch is imported
    import_torchmetrics_late()
    keep_freed_memory()
    try:
        status = run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # what read the output has ended, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def run(arguments: Sequence[str]) -> int:
    """Run a subcommand; see `main`."""
    if arguments == ["--version"]:
        print(f"captioning {captioning.__version__}")
        return 0
    command, rest = find_command(arguments)
    if isinstance(command, HydraCommand) and (near := _meant(command, rest)):
        print(f"captioning: {command.name} has no subcommand {rest[0]}; {near}", file=sys.stderr)
        return WRONG_USAGE
    if isinstance(command, HydraCommand):
        from captioning.commands.hydra_command import run_hydra

        run_hydra(command, rest)
        below = [name for name in COMMANDS if name.startswith(f"{command.name} ")]
        if below and HELP & set(rest):
            print("\nfurther commands:", *_lines(below), sep="\n")
        return 0
    if command is not None:
        return run_plain(command, rest)
    return show_commands(arguments)


def find_command(arguments: Sequence[str]) -> tuple[Command | None, list[str]]:
    """Subcommand at the beginning of the arguments, and the remaining arguments."""
    for length in (2, 1):
        command = COMMANDS.get(" ".join(arguments[:length]))
        if command is not None:
            return command, list(arguments[length:])
    return None, []


def _meant(command: HydraCommand, rest: Sequence[str]) -> str:
    """Subcommand that a mistyped word probably means, if the word is not KEY=VALUE."""
    if not rest or "=" in rest[0] or not rest[0][:1].isalpha():
        return ""
    below = [name for name in COMMANDS if name.startswith(f"{command.name} ")]
    near = difflib.get_close_matches(f"{command.name} {rest[0]}", below, n=1, cutoff=0.8)
    return f"did you mean {near[0]!r}?" if near else ""


def show_commands(arguments: Sequence[str]) -> int:
    """Print all subcommands, or those of a word such as ``curate``, or an error."""
    words = [word for word in arguments if word not in HELP]
    below = [name for name in COMMANDS if words and name.startswith(f"{words[0]} ")]
    if len(words) > bool(below):
        name = " ".join(words[:2])
        if not below and name not in RENAMED:
            name = words[0]
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "captioning --help lists all commands"
        hint = f"it is now {RENAMED[name]!r}" if name in RENAMED else hint
        print(f"captioning: {name!r} is not a command; {hint}", file=sys.stderr)
        return WRONG_USAGE
    print(overview(below))
    return 0 if HELP & set(arguments) else WRONG_USAGE


def run_plain(
    command: PlainCommand, arguments: Sequence[str], *, program: str = "captioning "
) -> int:
    """Parse a command's options and call the command; see `main` for the status."""
    parser = ArgumentParser(prog=f"{program}{command.name}", description=command.summary)
    command.add_arguments(parser)
    if command.examples:
        parser.formatter_class = RawDescriptionHelpFormatter
        about = f"\n\n{parser.epilog}" if parser.epilog else ""
        parser.epilog = f"{shown_examples(command)}{about}"
    parse = parser.parse_known_intermixed_args if command.mixed else parser.parse_known_args
    options, unknown = parse(arguments)
    if unknown:
        known = [name for action in parser._actions for name in action.option_strings]
        near = difflib.get_close_matches(unknown[0].partition("=")[0], known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    try:
        return command.call(options) or 0
    except BrokenPipeError:
        raise
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        if os.environ.get(FULL_ERROR):
            raise
        print(f"{command.name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{command.name}: interrupted", file=sys.stderr)
        return INTERRUPTED


def overview(names: Iterable[str] = ()) -> str:
    """Subcommands of these names, with one line each.

    Args:
        names: commands to list; empty: all by group, with two-word commands of a family in one
            line.
    """
    lines = ["usage: captioning COMMAND ..., captioning COMMAND --help"]
    if names := list(names):
        return "\n".join([*lines, "", *_lines(names)])
    for title, group in GROUPS.items():
        families: dict[str, list[str]] = {}
        for name in group:
            first, _, second = name.partition(" ")
            families.setdefault(first, []).append(second)
        lines += ["", f"{title}:"]
        for first, seconds in families.items():
            if first in group:
                lines += _lines([first])
            if below := [second for second in seconds if second]:
                lines.append(f"  {first + ' ...':<20} {', '.join(below)}")
    return "\n".join([*lines, "", "exit status: 0; 1 after an error; 2 for wrong usage"])


def _lines(names: Iterable[str]) -> list[str]:
    return [f"  {name:<20} {COMMANDS[name].summary}" for name in names]
