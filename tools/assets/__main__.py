"""Run a command that creates shipped weights or lists, from a checkout.

    python -m tools.assets NAME [options or KEY=VALUE ...]

Their configs lie beside the configs of ``captioning`` and use the same config groups.
"""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from captioning.commands.command import Command, HydraCommand, PlainCommand
from captioning.commands.hydra_command import run_hydra
from captioning.commands.main import HELP, WRONG_USAGE, run_plain
from captioning.runtime.cores import keep_freed_memory

log = logging.getLogger(__name__)


def _show_caption_parser(card: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    for name, scores in card["accuracy"].items():
        log.info(f"{name}: " + " ".join(f"{key} {value:.4f}" for key, value in scores.items()))
    log.info(f"{card['bytes']} bytes in {arguments['out']}")


def _show_parser_captions(number: int, arguments: Mapping[str, Any]) -> None:
    log.info(f"{number} captions in {arguments['out']}")


def _parser_accuracy_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("parses", help="JSON Lines file of parses, such as the teacher's")
    parser.add_argument("truth", help="manually corrected parses of the same captions")


def _parser_accuracy(options: Namespace) -> None:
    from tools.assets.parser_accuracy import compare_files

    scores = compare_files(options.parses, options.truth)
    print(" ".join(f"{name} {value:.4f}" for name, value in scores.items()))


def _entity_names_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--annotations", default="pycocoevalcap:captions_train2014")
    parser.add_argument("--every", type=int, default=16, help="one caption of so many is read")
    parser.add_argument("--min-count", type=int, default=8, help="captions that name an entity")
    parser.add_argument("--cache", help="folder of cached parses; none: no cache")
    parser.add_argument("--out", type=Path, help="output file; default: the packaged list")


def _entity_names(options: Namespace) -> None:
    from tools.assets.entity_names import write_names

    number, out = write_names(**vars(options))
    print(f"{out}: {number} names")


def _unseen_photos_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, help="default: coco_unseen.txt in the folder cache")


def _unseen_photos(options: Namespace) -> None:
    from tools.assets.unseen_photos import write_unseen_photos

    number, out = write_unseen_photos(options.out)
    print(f"{out}: {number} photos")


def _show_autoencoder(card: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    log.info(f"{arguments['out']}: {card['val']}")


def _show_diffusion(card: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    log.info(f"{arguments['out']}: {card['history'][-1]}")


def _captioner_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("run", type=Path, help="folder of a finished run")
    add("--out", type=Path, help="new folder; default: the packaged captioner's folder")
    add("--photos", type=int, default=200, help="test photos that the two precisions caption (200)")
    add("--bits", type=int, choices=(8, 16), default=16, help="bits per number in matrices (16)")
    add("--evaluation", type=Path, action="append", default=[], help="of captioning evaluate")
    add("--terms", type=Path, help="text file with terms of use of data and weights")


def _captioner(options: Namespace) -> None:
    from tools.assets.captioner import SHIPPED, ship

    out = options.out or SHIPPED
    card = ship(
        options.run,
        out,
        num_photos=options.photos,
        bits=options.bits,
        evaluations=options.evaluation,
        terms=options.terms.read_text(encoding="utf-8").strip() if options.terms else "",
    )
    print(f"{out}: {card['bytes']:,} bytes of weights; {card['precision']}")


_COMMANDS: tuple[Command, ...] = (
    PlainCommand(
        name="assets captioner",
        summary="Package a finished run as the shipped captioner.",
        add_arguments=_captioner_arguments,
        call=_captioner,
    ),
    HydraCommand(
        name="assets caption-parser",
        summary="Train the caption parser on a teacher's parses.",
        config="caption_parser",
        task="tools.assets.caption_parser.train_caption_parser",
        show=_show_caption_parser,
    ),
    HydraCommand(
        name="assets parser-captions",
        summary="Draw captions for the caption parser's teacher to parse.",
        config="parser_captions",
        task="tools.assets.parser_captions.write_captions",
        show=_show_parser_captions,
    ),
    PlainCommand(
        name="assets parser-accuracy",
        summary="Evaluate a file of parses against reference parses.",
        add_arguments=_parser_accuracy_arguments,
        call=_parser_accuracy,
    ),
    PlainCommand(
        name="assets entity-names",
        summary="Write the list of entities that captions name.",
        add_arguments=_entity_names_arguments,
        call=_entity_names,
    ),
    PlainCommand(
        name="assets unseen-photos",
        summary="List COCO photos that were not used to train the joint space.",
        add_arguments=_unseen_photos_arguments,
        call=_unseen_photos,
    ),
    HydraCommand(
        name="assets autoencoder",
        summary="Train the small autoencoder of images.",
        config="autoencoder",
        task="tools.assets.autoencoder.train_autoencoder",
        show=_show_autoencoder,
    ),
    HydraCommand(
        name="assets diffusion",
        summary="Train the small text-to-image model.",
        config="diffusion",
        task="tools.assets.diffusion.train_diffusion",
        show=_show_diffusion,
    ),
)
COMMANDS = {command.name: command for command in _COMMANDS}


def main(arguments: Sequence[str]) -> int:
    """Run a command; the exit status is that of `captioning.commands.main.main`."""
    command = COMMANDS.get(f"assets {arguments[0]}") if arguments else None
    if command is None:
        print("usage: python -m tools.assets NAME ..., python -m tools.assets NAME --help")
        for maker in _COMMANDS:
            print(f"  {maker.name.removeprefix('assets '):<16} {maker.summary}")
        return 0 if set(arguments) & HELP else WRONG_USAGE
    keep_freed_memory()
    if isinstance(command, HydraCommand):
        run_hydra(command, arguments[1:])
        return 0
    return run_plain(command, arguments[1:], program="python -m tools.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
