"""``captioning convert``: convert checkpoints published by other projects."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path

from captioning.commands.command import PlainCommand

KINDS = ("blip", "cos_cvae", "updown_baseline", "updown_ruotianluo", "viecap", "vl_bart")


def _arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("kind", choices=KINDS, help="project that published the checkpoint")
    add("checkpoint", type=Path, help="the authors' checkpoint file")
    add("overrides", nargs="*", metavar="FOLDER KEY=VALUE",
        help="a new folder (also --to), and settings as for `captioning train`")  # fmt: skip
    add("--to", type=Path, metavar="FOLDER", help=SUPPRESS)
    add("--vocabulary", type=Path, help="the authors' vocabulary, if the checkpoint lacks it")
    add("--base", type=Path, help="folder of the pretrained network (transformers)")


def _convert(options: Namespace) -> None:
    folders = [text for text in options.overrides if "=" not in text]
    overrides = [text for text in options.overrides if "=" in text]
    if len(folders) + (options.to is not None) != 1:
        raise ValueError("FOLDER: give one new folder for the output")
    to = options.to or Path(folders[0])
    if not options.checkpoint.exists():
        raise FileNotFoundError(f"{options.checkpoint}: no such file")
    from captioning.convert.converted import Options, convert

    further = Options(vocabulary=options.vocabulary, base=options.base, overrides=overrides)
    keys = convert(options.kind, options.checkpoint, to, further)
    for key in keys:
        print(f"{key.key} -> {' '.join(key.into) or 'not used'}{key.note and f' ({key.note})'}")
    unused = sum(not key.into for key in keys)
    print(f"{to}: used {len(keys) - unused} keys of the checkpoint, {unused} not")


CONVERT = PlainCommand(
    name="convert",
    summary="Convert a published checkpoint for use in this project.",
    examples=(
        "convert updown_ruotianluo model.pth my_updown",
        "convert blip model_base.pth my_blip --base bert",
    ),
    add_arguments=_arguments,
    call=_convert,
    mixed=True,
)
