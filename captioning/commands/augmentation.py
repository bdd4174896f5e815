"""Commands that create pairs, captions and images, and evaluate them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from captioning.commands.command import HydraCommand, places

log = logging.getLogger(__name__)


def _show_set(card: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    from augmentation.run import summary

    log.info(f"{arguments['out']}: {summary(card['counts'])}")


def _show_trained(card: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    log.info(f"{arguments['out']}: before {card['before']}, after {card['history'][-1]}")


def _show_likeness(card: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    for name, measures in card["likeness"].items():
        columns = ", ".join(f"{key} {100 * value:.1f}" for key, value in measures.items())
        log.info(f"{name}: {columns}")


def _show_pictures(counts: dict[str, int], arguments: Mapping[str, Any]) -> None:
    made = counts.pop("made", 0)
    others = "".join(f"; {count} x {problem}" for problem, count in sorted(counts.items()))
    folder = arguments["curation"].image_source.cache.folder
    log.info(f"{folder}: {made:,} pictures{others}")


def _show_row(scores: dict[str, float], arguments: Mapping[str, Any]) -> None:
    log.info(" ".join(f"{name} {value:.4f}" for name, value in scores.items()))


AUGMENT = HydraCommand(
    name="augment",
    summary="Create new pairs of photo and caption, or new captions only.",
    examples=(
        "augment method=cutswap data=miniworld out=swapped",
        "augment method=toca corpus=coco out=synthetic",
    ),
    config="augmentation",
    task="augmentation.run.augment",
    show=_show_set,
)
CAPTIONED = HydraCommand(
    name="augment captioned",
    summary="Caption pasted images and their background photos with a finished run.",
    examples=(
        "augment captioned runs/my_run/seed0 swapped data=miniworld",
        "augment captioned runs/my_run/seed0 swapped data=miniworld num_pictures=50",
    ),
    config="captioned",
    task="augmentation.regions.captioned.describe_set",
    words=places("run", "augmented.root"),
)
TEACH = HydraCommand(
    name="augment teach",
    summary="Fine-tune a language model on a corpus of captions, for method=toca_taught.",
    examples=(
        "augment teach corpus=coco out=taught",
        "augment teach corpus=coco out=taught num_epochs=1",
    ),
    config="teaching",
    task="augmentation.toca.teaching.teach",
    show=_show_trained,
)
COMPARE = HydraCommand(
    name="augment compare",
    summary="Measure how similar one corpus of captions is to another.",
    examples=(
        "augment compare corpus=lines corpus.train.path=captions.txt corpus@target=coco",
        "augment compare corpus=coco corpus@target=coco first_images=100",
    ),
    config="compare_texts",
    task="augmentation.toca.corpus_similarity.compare",
    show=_show_likeness,
)
PICTURES = HydraCommand(
    name="augment pictures",
    summary="Generate images for a dataset's captions before training.",
    examples=(
        "augment pictures data=miniworld curation/image_source=small_diffusion",
        "augment pictures data=miniworld curation/image_source=small_diffusion first_images=20",
    ),
    config="pictures",
    task="augmentation.image_replacement.made_ahead.make_ahead",
    show=_show_pictures,
)
ROUND_TRIP = HydraCommand(
    name="augment round-trip",
    summary="Generate images for captions, caption the images, and score the round trip.",
    examples=(
        "augment round-trip runs/my_run/seed0",
        "augment round-trip runs/my_run/seed0 ~curation/image_source prompt=none",
    ),
    config="round_trip",
    task="augmentation.image_replacement.round_trip.round_trip",
    show=_show_row,
    words=places("captioner"),
)
FINE_TUNE = HydraCommand(
    name="augment fine-tune",
    summary="Fine-tune an image generator on a dataset's captions.",
    examples=(
        "augment fine-tune generator=miniworld",
        "augment fine-tune generator=miniworld tuning=full training.num_steps=100",
    ),
    config="fine_tuning",
    task="augmentation.image_replacement.training.fine_tuning.train_generator",
    show=_show_trained,
)
