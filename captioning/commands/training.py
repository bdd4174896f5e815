"""Commands that train: ``train``, ``find-lr``, ``train-space`` and ``demo``."""

from __future__ import annotations

import logging
import os
import sys
import webbrowser
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioning.commands.command import INTERRUPTED, HydraCommand, PlainCommand, photos
from captioning.commands.quick_imports import quick_imports
from captioning.commands.report import report_ended

SCENES = "miniworld"
NUM_REMOVED = 12  # removed captions on the page of the demo
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")  # without one, a browser would take over the terminal
log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from captioning.evaluation.compare import Comparison


@dataclass(frozen=True, kw_only=True)
class TrainedRun:
    """A finished run, as ``train`` returns it.

    Attributes:
        folder: the run folder.
        scores: test scores by name, as fractions (CIDEr-D and CIDEr up to 10); empty for a data
            set without a test split.
        checkpoint: the checkpoint of the best epoch, or of the last one with ``monitor=last``;
            None where a finished run has none any more.
        name: the run's name and seed.

    Examples:
        >>> from captioning import train
        >>> run = train("my_photos", model="updown_tiny", num_epochs=1, run_dir="my_run")
        >>> run.checkpoint
        PosixPath('my_run/checkpoints/best.ckpt')
    """

    folder: Path
    scores: dict[str, float]
    checkpoint: Path | None
    name: str


def _train(config: Any) -> TrainedRun:
    _tell_of_scenes(config.data.get("name"))
    with quick_imports():
        from captioning.results.run_folder import RunFolder
        from captioning.training.preflight import settings_of
        from captioning.training.run import train

    settings = settings_of(config)
    scores, folder = train(settings, finished=report_ended), Path(settings.run_dir)
    checkpoint = None
    if any((folder / "checkpoints").glob("*.ckpt")):
        checkpoint = RunFolder(folder).tested_checkpoint(settings.monitor)
    name = f"{settings.run_name}, seed {settings.seed}"
    return TrainedRun(folder=folder, scores=scores, checkpoint=checkpoint, name=name)


def _show_trained(run: TrainedRun, arguments: Mapping[str, Any]) -> float | None:
    from captioning.training.run import print_summary

    print_summary(run.name, run.folder, run.scores)
    return run.scores.get("CIDEr-D")


def _tell_of_scenes(data: str | None) -> None:
    """Log that a training uses generated scenes, if nobody has asked for them."""
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
        from captioning.training.demo import main
        from captioning.training.signals import Stopped

    try:
        page = main(options.overrides, page=_write_demo_page, finished=report_ended)
    except HydraException as error:
        line = explain_hydra_error(error, name="train", overrides=options.overrides)
        raise ValueError(line) from error
    except Stopped as stopped:
        print(f"demo: {stopped}; so does the demo, started again", file=sys.stderr)
        return stopped.status
    except KeyboardInterrupt:
        print("demo: interrupted; the same command resumes", file=sys.stderr)
        return INTERRUPTED
    opened = "opened in your browser" if open_in_browser(page) else "open it in a browser"
    print(f"Images with the captions of both runs ({opened}):\n{page}")
    return 0


def _write_demo_page(compared: Comparison, summary: str, path: Path) -> None:
    """Write the page of both runs, with a sample of the captions that curation removed."""
    from captioning.miniworld.captions import cut_at_wrong_words, scene_of
    from curation.record import changes
    from curation.review.runs.reading import read_finished_run
    from curation.review.runs.run_page import initialised, title
    from curation.review.runs.runs_page import DemoPart, write_compared_page

    run = read_finished_run(Path(compared.facts["runs"][1]["seeds"][0]["folder"]))
    edits = [] if run.record is None else list(changes(run.record.view, run.record.truth))
    of_scenes = run.run.setting("data.name") == SCENES

    def cut(caption: str, image_id: str) -> list[str]:
        return cut_at_wrong_words(caption, scene_of(image_id)) if of_scenes else [caption]

    began = initialised(run) or ["initialised with random weights"]
    demo = DemoPart(
        heading="Training on wrong captions, without and with curation",
        about=[*title(run), ", ", *began, "; the same images and number of updates for both runs"],
        removed=edits[:: max(1, len(edits) // NUM_REMOVED)][:NUM_REMOVED],
        summary=summary,
        cut=cut,
    )
    write_compared_page(compared.facts, compared.photos, path, demo)


def open_in_browser(page: Path) -> bool:
    """Open a page in a browser, if a person works at this machine with a window system."""
    has_display = sys.platform in ("darwin", "win32") or any(map(os.environ.get, DISPLAYS))
    return sys.stdout.isatty() and has_display and webbrowser.open(page.absolute().as_uri())


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
    summary="Train a captioner, test it, and write a run folder.",
    examples=(
        "train my_photos",
        "train data=flickr8k model=updown_small num_epochs=20 seed=1",
    ),
    config="train",
    task=_train,
    show=_show_trained,
    check=_check,
    words=photos,
)
FIND_LR = HydraCommand(
    name="find-lr",
    summary="Suggest a learning rate by a short sweep; takes a training's settings.",
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
