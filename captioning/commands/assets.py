"""Commands that make the small weights and lists that are shipped."""

from __future__ import annotations

import logging
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from captioning.commands.command import HydraCommand, PlainCommand

log = logging.getLogger(__name__)


def _joint_space(config: Any) -> None:
    from captioning.assets.joint_space import train_joint_space

    card = train_joint_space(config)
    log.info("test: " + " ".join(f"{name} {value:.3f}" for name, value in card["test"].items()))
    log.info(f"heads: {config.out}")


def _caption_parser(config: Any) -> None:
    from captioning.assets.caption_parser import train_caption_parser

    card = train_caption_parser(config)
    for name, scores in card["accuracy"].items():
        log.info(f"{name}: " + " ".join(f"{key} {value:.4f}" for key, value in scores.items()))
    log.info(f"{card['bytes']} bytes in {config.out}")


def _parser_captions(config: Any) -> None:
    from captioning.assets.parser_captions import write_captions

    number = write_captions(config)
    log.info(f"{number} captions in {config.out}")


def _parser_accuracy_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("parses", help="JSON Lines file of parses, such as the teacher's")
    parser.add_argument("truth", help="the same captions, checked by hand")


def _parser_accuracy(options: Namespace) -> None:
    from captioning.assets.parser_accuracy import compare_files

    scores = compare_files(options.parses, options.truth)
    print(" ".join(f"{name} {value:.4f}" for name, value in scores.items()))


def _entity_names_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--annotations", default="pycocoevalcap:captions_train2014")
    parser.add_argument("--every", type=int, default=16, help="one caption of so many is read")
    parser.add_argument("--min-count", type=int, default=8, help="captions that name an entity")
    parser.add_argument("--cache", help="folder of parses; none keeps none")
    parser.add_argument("--out", type=Path, help="default: the packaged list")


def _entity_names(options: Namespace) -> None:
    from captioning.assets.entity_names import write_names

    number, out = write_names(**vars(options))
    print(f"{out}: {number} names")


def _unseen_photos_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, help="default: coco_unseen.txt in the folder cache")


def _unseen_photos(options: Namespace) -> None:
    from captioning.assets.unseen_photos import write_unseen_photos

    number, out = write_unseen_photos(options.out)
    print(f"{out}: {number} photos")


def _autoencoder(config: Any) -> None:
    from augmentation.image_replacement.training.autoencoder import train_autoencoder

    log.info(f"{config.out}: {train_autoencoder(config)['val']}")


def _diffusion(config: Any) -> None:
    from augmentation.image_replacement.training.diffusion import train_diffusion

    log.info(f"{config.out}: {train_diffusion(config)['history'][-1]}")


def _fine_tuning(config: Any) -> None:
    from augmentation.image_replacement.training.fine_tuning import train_generator

    card = train_generator(config)
    log.info(f"{config.out}: before {card['before']}, after {card['history'][-1]}")


def _captioner_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("run", type=Path, help="a finished run")
    add("--out", type=Path, help="a new folder; default: where the package looks for it")
    add("--photos", type=int, default=200, help="test photos that the two precisions caption (200)")
    add("--bits", type=int, choices=(8, 16), default=16, help="of a number in matrices (16)")
    add("--evaluation", type=Path, action="append", default=[], help="of captioning evaluate")
    add("--terms", type=Path, help="text file: terms of data and weights")


def _captioner(options: Namespace) -> None:
    from captioning.assets.captioner import SHIPPED, ship

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


CAPTIONER = PlainCommand(
    name="assets captioner",
    summary="Write a finished run as the captioner that is shipped.",
    add_arguments=_captioner_arguments,
    call=_captioner,
)
JOINT_SPACE = HydraCommand(
    name="assets joint-space",
    summary="Train the heads of the small joint space of photos and captions.",
    config="joint_space",
    task=_joint_space,
)
CAPTION_PARSER = HydraCommand(
    name="assets caption-parser",
    summary="Train the caption parser on a teacher's parses.",
    config="caption_parser",
    task=_caption_parser,
)
PARSER_CAPTIONS = HydraCommand(
    name="assets parser-captions",
    summary="Draw the captions that the caption parser's teacher parses.",
    config="parser_captions",
    task=_parser_captions,
)
PARSER_ACCURACY = PlainCommand(
    name="assets parser-accuracy",
    summary="Score a file of parses against parses that are taken as the truth.",
    add_arguments=_parser_accuracy_arguments,
    call=_parser_accuracy,
)
ENTITY_NAMES = PlainCommand(
    name="assets entity-names",
    summary="Write the list of entities that captions name.",
    add_arguments=_entity_names_arguments,
    call=_entity_names,
)
UNSEEN_PHOTOS = PlainCommand(
    name="assets unseen-photos",
    summary="List COCO's photos that the joint space was not trained on.",
    add_arguments=_unseen_photos_arguments,
    call=_unseen_photos,
)
AUTOENCODER = HydraCommand(
    name="assets autoencoder",
    summary="Train the small autoencoder of images.",
    config="autoencoder",
    task=_autoencoder,
)
DIFFUSION = HydraCommand(
    name="assets diffusion",
    summary="Train the small text-to-image model.",
    config="diffusion",
    task=_diffusion,
)
FINE_TUNING = HydraCommand(
    name="assets fine-tuning",
    summary="Fine-tune an image generator on the captions of a data set.",
    config="fine_tuning",
    task=_fine_tuning,
)
