"""Commands on the edits and scores of curation: ``captioning curate ...``."""

from __future__ import annotations

import logging
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from captioning.commands.command import HydraCommand, PlainCommand, places
from captioning.commands.first_look import look_for_run
from captioning.commands.quick_imports import quick_imports
from captioning.config.plugins import import_plugins

log = logging.getLogger(__name__)

CACHE = "CAPTIONING_CACHE"
EXPORT_FORMATS = (
    *("coco", "jsonl", "imagefolder", "parquet", "datasets", "webdataset"),
    *("messages", "text_files", "csv", "karpathy", "journal"),
)
EXPORT_PHOTOS = ("none", "copy", "link")
EXPORT_FORMS = ("sharegpt", "llava", "kohya")


def _show_detections(entries: list[dict[str, Any]], arguments: Mapping[str, Any]) -> None:
    for entry in entries:
        for name, scores in entry["scores"].items():
            log.info(
                f"epoch {entry['epoch']}  {name:32} AUC {scores['auc']:.3f}  "
                f"precision at the noise rate {scores['precision_at_noise_rate']:.3f}"
            )


def _show_scores(result: tuple[str, Sequence[float]], arguments: Mapping[str, Any]) -> None:
    import numpy as np

    name, scores = result
    low, middle, high = np.quantile(scores, (0.1, 0.5, 0.9)) if scores else (np.nan,) * 3
    log.info(
        f"{name} of {len(scores):,} captions: 10% below {low:.3f}, 50% below {middle:.3f}, 10% "
        f"above {high:.3f}; stored in {arguments['pairs'].cache_folder}"
    )


def _run_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", help="run folder")
    parser.add_argument(
        "--plugins",
        nargs="+",
        default=[],
        metavar="PACKAGE",
        help="your own packages that the run needs",
    )


def _export_arguments(parser: ArgumentParser) -> None:
    _run_arguments(parser)
    parser.add_argument("folder", help="new folder")
    parser.add_argument("--format", choices=EXPORT_FORMATS, default="coco")
    add_photo_arguments(parser)
    add_part(parser)


def add_part(parser: ArgumentParser) -> None:
    """Add the option that selects splits of a dataset written from a run."""
    parser.add_argument(
        "--part", choices=("all", "train"), default="all",
        help="splits of a run: all (with val and test, which are not curated), or only train (all)",
    )  # fmt: skip


def add_photo_arguments(parser: ArgumentParser, *, of: str = "") -> None:
    """Add the options on the contents of an export, other than its format.

    Args:
        parser: the command's parser.
        of: name of the dataset in the help.
    """
    add = parser.add_argument
    add("--photos", choices=EXPORT_PHOTOS, help=f"{of}none, or copy photos into the format")
    add(
        "--form", choices=EXPORT_FORMS,
        help=f"{of}messages: sharegpt (LLaMA-Factory) or llava; text_files: kohya (N_photos)",
    )  # fmt: skip
    add("--question", metavar="TEXT", help=f"{of}messages: default question")
    add("--repeats", type=int, default=1, metavar="N", help=f"{of}kohya: repeats of photos (1)")


def add_held_out(parser: ArgumentParser) -> None:
    """Add the option on splits for datasets read from a folder, which may have no splits."""
    parser.add_argument(
        "--held-out", type=float, metavar="SHARE",
        help="share of photos for each of val and test, if the dataset has no splits (0.1; 0: no "
             "split)",
    )  # fmt: skip


def cache_of(options: Namespace) -> Path:
    """Folder that caches results computed from photos."""
    return Path(options.cache or os.environ.get(CACHE, "cache"))


def held_out_of(options: Namespace) -> dict[str, Any]:
    """Arguments for drawing splits, from the options.

    Raises:
        ValueError: the share is outside [0, 0.5).
    """
    chosen = {} if options.held_out is None else {"held_out": options.held_out}
    if not 0 <= chosen.get("held_out", 0) < 0.5:
        raise ValueError(f"--held-out must be at least 0 and below 0.5: got {options.held_out:g}")
    return {**chosen, "keys_folder": cache_of(options) / "photo_keys"}


def style_of(options: Namespace) -> dict[str, Any]:
    """Arguments of `curation.export.tool_files.Style`, from the options."""
    return {name: getattr(options, name) for name in ("form", "question", "repeats")}


def _export(options: Namespace) -> None:
    look_for_run(options.run)
    with quick_imports():
        from curation.export.export import HOLD_PHOTOS, export
        from curation.export.tool_files import Style
        from curation.finished_run import read_asked, read_held_out, read_run

    import_plugins(options.plugins)
    photos = options.photos or ("copy" if options.format in HOLD_PHOTOS else "none")
    run, folder, style = Path(options.run), Path(options.folder), Style(**style_of(options))
    style.check(options.format)
    record = read_run(run)
    is_alone = options.part == "train" or options.format == "journal"
    beside = {} if is_alone else read_held_out(run)
    if options.format == "messages":
        style = style.asking(read_asked(run, {"train": record.view.roster, **beside}))
    count = export(
        record, run, folder, format=options.format, photos=photos, style=style, beside=beside
    )
    without = without_photos(options.format, photos)
    print(f"{folder}: {count} captions; README.md lists the changes{without}")


def without_photos(format: str, photos: str | None) -> str:
    """Message for an exported dataset that has captions but no photos."""
    if format not in ("coco", "jsonl", "messages", "csv", "karpathy") or photos in ("copy", "link"):
        return ""
    return "; the photos are not in it: --photos copy (or link) puts them there"


def _show_capfilt(card: dict[str, Any] | None, arguments: Mapping[str, Any]) -> None:
    from curation.capfilt.offline_set import summary

    done = f"shard {arguments['shard']} is finished" if card is None else summary(card)
    log.info(f"{arguments['out']}: {done}")


CAPFILT = HydraCommand(
    name="curate capfilt",
    summary="Generate a caption for every photo, then filter new and old captions (CapFilt).",
    examples=(
        "curate capfilt data=flickr8k out=written",
        "curate capfilt data=flickr8k out=written first_images=100",
    ),
    config="capfilt",
    task="curation.capfilt.offline_set.capfilt",
    show=_show_capfilt,
)
SCORE = HydraCommand(
    name="curate score",
    summary="Score how well all captions fit their photos, before training.",
    examples=(
        "curate score data=flickr8k matching@pairs=joint_space",
        "curate score data=flickr8k matching@pairs=joint_space first_images=100",
    ),
    config="score",
    task="curation.detect.score_data",
    show=_show_scores,
)
DETECT = HydraCommand(
    name="curate detect",
    summary="Measure how well scores detect the faults planted in a run's data.",
    examples=(
        "curate detect runs/my_run/seed0",
        "curate detect runs/my_run/seed0 ~scores.similarity",
    ),
    config="detect",
    task="curation.detect.detect_run",
    show=_show_detections,
    words=places("run"),
)
EXPORT = PlainCommand(
    name="curate export",
    summary="Write the curated dataset of a run, to publish it or to train on it elsewhere.",
    examples=(
        "curate export runs/my_run/seed0 cleaned",
        "curate export runs/my_run/seed0 cleaned --format jsonl --photos copy",
    ),
    add_arguments=_export_arguments,
    call=_export,
)
