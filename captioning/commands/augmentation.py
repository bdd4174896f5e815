"""Commands that make pairs, captions and pictures, and score them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from captioning.commands.command import HydraCommand
from captioning.commands.quick_imports import quick_imports

log = logging.getLogger(__name__)


def _show_set(card: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    from augmentation.run import summary

    log.info(f"{arguments['out']}: {summary(card['counts'])}")


def _captioned(config: Any) -> None:
    with quick_imports():
        from augmentation.regions.captioned import describe_set

    describe_set(config)


def _teach(config: Any) -> None:
    with quick_imports():
        from augmentation.toca.teaching import teach

    card = teach(config)
    log.info(f"{config.out}: before {card['before']}, after {card['history'][-1]}")


def _show_likeness(card: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    for name, measures in card["likeness"].items():
        columns = ", ".join(f"{key} {100 * value:.1f}" for key, value in measures.items())
        log.info(f"{name}: {columns}")


def _show_pictures(counts: dict[str, int], arguments: Mapping[str, Any]) -> None:
    made = counts.pop("made", 0)
    others = "".join(f"; {count} x {problem}" for problem, count in sorted(counts.items()))
    folder = arguments["curation"].image_source.cache.folder
    log.info(f"{folder}: {made:,} pictures{others}")


def _round_trip(config: Any) -> None:
    with quick_imports():
        from augmentation.image_replacement.round_trip import round_trip

    log.info(" ".join(f"{name} {value:.4f}" for name, value in round_trip(config).items()))


def _fine_tune(config: Any) -> None:
    from augmentation.image_replacement.training.fine_tuning import train_generator

    card = train_generator(config)
    log.info(f"{config.out}: before {card['before']}, after {card['history'][-1]}")


AUGMENT = HydraCommand(
    name="augment",
    summary="Make new pairs of photo and caption, or new captions alone.",
    config="augmentation",
    task="augmentation.run.augment",
    show=_show_set,
)
CAPTIONED = HydraCommand(
    name="augment captioned",
    summary="Caption pasted pictures and the photos behind them with a finished run.",
    config="captioned",
    task=_captioned,
)
TEACH = HydraCommand(
    name="augment teach",
    summary="Teach a language model the captions of a corpus, for method=toca_taught.",
    config="teaching",
    task=_teach,
)
COMPARE = HydraCommand(
    name="augment compare",
    summary="Measure how near one corpus of captions is to another.",
    config="compare_texts",
    task="augmentation.toca.corpus_similarity.compare",
    show=_show_likeness,
)
PICTURES = HydraCommand(
    name="augment pictures",
    summary="Make the pictures of a data set's captions ahead of training.",
    config="pictures",
    task="augmentation.image_replacement.made_ahead.make_ahead",
    show=_show_pictures,
)
ROUND_TRIP = HydraCommand(
    name="augment round-trip",
    summary="Generate pictures for captions, caption them, and score what comes back.",
    config="round_trip",
    task=_round_trip,
)
FINE_TUNE = HydraCommand(
    name="augment fine-tune",
    summary="Fine-tune an image generator on the captions of a data set.",
    config="fine_tuning",
    task=_fine_tune,
)
