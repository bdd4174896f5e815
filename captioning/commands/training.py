"""Commands that train: ``train``, ``find-lr``, ``train-space`` and ``demo``."""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from captioning.commands.command import HydraCommand, PlainCommand, photos
from captioning.commands.quick_imports import quick_imports
from captioning.commands.report import report_ended

SCENES = "miniworld"
log = logging.getLogger(__name__)


def _train(config: Any) -> float | None:
    _tell_of_scenes(config.data.get("name"))
    with quick_imports():
        from captioning.training.preflight import settings_of
        from captioning.training.run import print_summary, train

    settings = settings_of(config)
    scores = train(settings, finished=report_ended)
    print_summary(f"{settings.run_name}, seed {settings.seed}", Path(settings.run_dir), scores)
    return scores.get("CIDEr-D")


def _tell_of_scenes(data: str | None) -> None:
    """Say that a training uses generated scenes, where nobody has asked for them."""
    from hydra.core.hydra_config import HydraConfig
    from pytorch_lightning.utilities import rank_zero_only

    chosen = any(text.lstrip("+").startswith("data=") for text in HydraConfig.get().overrides.task)
    if data == SCENES and not chosen:
        rank_zero_only(print)(
            f"train: without data= this trains on generated scenes (data={SCENES}); on your own "
            "photos: data=own data.root=FOLDER"
        )


def _check(config: Any) -> None:
    with quick_imports():
        from captioning.config.plugins import import_plugins
        from captioning.training.preflight import check_settings, settings_of

    import_plugins(config.get("plugins") or [])
    check_settings(settings_of(config))


def _demo_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="overrides as of captioning train"
    )


def _demo(options: Namespace) -> int:
    with quick_imports():
        from hydra.errors import HydraException

        from captioning.commands.hydra_errors import explain_hydra_error
        from captioning.evaluation.compare import Comparison
        from captioning.training.demo import main
        from captioning.training.signals import Stopped
        from curation.review.runs.runs_page import write_compared_page

    def page(compared: Comparison, path: Path) -> None:
        write_compared_page(compared.facts, compared.photos, path)

    try:
        main(options.overrides, finished=report_ended, page=page)
    except HydraException as error:
        line = explain_hydra_error(error, name="train", overrides=options.overrides)
        raise ValueError(line) from error
    except Stopped as stopped:
        print(f"demo: {stopped}; so does the demo, started again", file=sys.stderr)
        return stopped.status
    return 0


def _find_lr(config: Any) -> None:
    with quick_imports():
        from captioning.training.find_lr import find_lr, print_suggestion
        from captioning.training.preflight import settings_of

    suggestion = find_lr(settings_of(config))
    print_suggestion(suggestion.rate, suggestion.folder / "curve.png")


def _show_heads(card: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    log.info("test: " + " ".join(f"{name} {value:.3f}" for name, value in card["test"].items()))
    log.info(f"heads: {arguments['out']}")


TRAIN = HydraCommand(
    name="train",
    summary="Train a captioner, test it, and leave a run folder.",
    examples=(
        "train my_photos",
        "train data=flickr8k model=updown_small num_epochs=20 seed=1",
    ),
    config="train",
    task=_train,
    check=_check,
    words=photos,
)
FIND_LR = HydraCommand(
    name="find-lr",
    summary="Suggest a learning rate for a training by a short sweep; takes its settings.",
    examples=(
        "find-lr my_photos",
        "find-lr data=miniworld model=updown_tiny",
    ),
    config="train",
    task=_find_lr,
    words=photos,
)
DEMO = PlainCommand(
    name="demo",
    summary="Train on generated scenes with faulty captions, with and without curation.",
    examples=(
        "demo",
        "demo num_epochs=3",
    ),
    add_arguments=_demo_arguments,
    call=_demo,
)
TRAIN_SPACE = HydraCommand(
    name="train-space",
    summary="Train the heads of the small joint space of photos and captions.",
    examples=(
        "train-space",
        "train-space first_images=200 out=heads.safetensors",
    ),
    config="joint_space",
    task="captioning.training.joint_heads.train_joint_space",
    show=_show_heads,
)
