"""The command ``captioning convert``: published checkpoints of others."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from captioning.commands.command import PlainCommand

KINDS = ("blip", "cos_cvae", "updown_baseline", "updown_ruotianluo", "viecap", "vl_bart")


def _arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("kind", choices=KINDS, help="whose checkpoint it is")
    add("checkpoint", type=Path, help="the authors' file")
    add("overrides", nargs="*", help="of `captioning train`")
    add("--to", type=Path, required=True, metavar="FOLDER", help="a new folder")
    add("--vocabulary", type=Path, help="the authors' words, where the checkpoint lacks them")
    add("--base", type=Path, help="folder of the network that theirs began with (transformers)")


def _convert(options: Namespace) -> None:
    from captioning.convert.converted import Options, convert

    further = Options(vocabulary=options.vocabulary, base=options.base, overrides=options.overrides)
    keys = convert(options.kind, options.checkpoint, options.to, further)
    for key in keys:
        print(f"{key.key} -> {' '.join(key.into) or 'not used'}{key.note and f' ({key.note})'}")
    unused = sum(not key.into for key in keys)
    print(f"{options.to}: {len(keys) - unused} keys used, {unused} not")


CONVERT = PlainCommand(
    name="convert",
    summary="Make a checkpoint that its authors published ready for this project.",
    add_arguments=_arguments,
    call=_convert,
    mixed=True,
)
