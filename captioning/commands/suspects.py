"""``captioning curate suspects|corrections``: exchange captions with annotation tools."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path

from captioning.commands.check import by_options
from captioning.commands.command import PlainCommand
from captioning.commands.curation import (
    EXPORT_FORMATS,
    add_held_out,
    add_part,
    add_photo_arguments,
    held_out_of,
    style_of,
)
from captioning.commands.first_look import look_for_suspects
from captioning.commands.quick_imports import quick_imports
from captioning.config.plugins import import_plugins
from captioning.runtime.files import is_taken


def _arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("source", help="folder written by captioning check, or a run folder")
    add("--export", choices=("fiftyone", "label-studio"), required=True)
    add("folder", nargs="?", help="new or empty folder for the tasks (also --out)")
    add("--out", metavar="FOLDER", help=SUPPRESS)
    add("--top", type=int, metavar="N", help="with a run: the N captions of highest loss")
    add("--root", metavar="FOLDER", help="label-studio: root folder that photos are served from")
    add("--url", metavar="ADDRESS", help="label-studio: URL prefix of photo paths below the root")
    add("--plugins", nargs="+", default=[], metavar="PACKAGE", help="your own packages to import")


def _suspects(options: Namespace) -> None:
    if (options.out is None) == (options.folder is None):
        raise ValueError("FOLDER: give one new folder for the output")
    look_for_suspects(options.source)
    with quick_imports():
        from curation.review.suspects.label_studio import LOCAL_FILES, write_label_studio
        from curation.review.suspects.suspects import read_suspects, write_fiftyone

    import_plugins(options.plugins)
    folder = Path(options.out or options.folder)
    if is_taken(folder):
        raise ValueError(f"--out {folder} holds something already; choose a new folder")
    if options.export == "fiftyone" and (options.root or options.url):
        raise ValueError("--root and --url are for label-studio; FiftyOne opens files")
    suspects = read_suspects(options.source, top=options.top)
    if options.export == "fiftyone":
        write_fiftyone(suspects, folder)
        print(f"{folder}: {len(suspects)} captions, as fiftyone.types.FiftyOneDataset")
        return
    root = None if options.root is None else Path(options.root)
    address = options.url or LOCAL_FILES
    root = write_label_studio(suspects, folder, root=root, address=address)
    print(
        f"{folder}: {len(suspects)} tasks, photos below {root}; interface.xml sets the project up"
    )


def _corrections_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("decisions", help="JSON export of Label Studio")
    add("source", help="folder of photos that was checked, or the run folder")
    add("folder", help="new folder for the corrected dataset")
    add("--format", choices=EXPORT_FORMATS, default="coco")
    add_photo_arguments(parser)
    add_part(parser)
    add_held_out(parser)
    add("--cache", metavar="FOLDER", help="folder for cached hashes of photos (cache)")
    add("--plugins", nargs="+", default=[], metavar="PACKAGE", help="your own packages to import")


def _corrections(options: Namespace) -> None:
    with quick_imports():
        from curation.export.export import HOLD_PHOTOS
        from curation.export.tool_files import Style
        from curation.review.suspects.label_studio import write_corrected

    import_plugins(options.plugins)
    photos = options.photos or ("copy" if options.format in HOLD_PHOTOS else "none")
    style = Style(**style_of(options))
    with by_options("SOURCE"):
        counts = write_corrected(
            options.decisions, options.source, options.folder, format=options.format, photos=photos,
            style=style, part=options.part, **held_out_of(options),
        )  # fmt: skip
    left = counts.pop("left")
    decided = ", ".join(f"{count} x {name}" for name, count in counts.items()) or "nothing decided"
    print(f"{options.folder}: {left} captions; {decided}")


SUSPECTS = PlainCommand(
    name="curate suspects",
    summary="Write suspected captions for FiftyOne or Label Studio.",
    examples=(
        "curate suspects my_photos-check tasks --export label-studio",
        "curate suspects runs/my_run/seed0 suspects --export fiftyone --top 500",
    ),
    add_arguments=_arguments,
    call=_suspects,
    mixed=True,
)
CORRECTIONS = PlainCommand(
    name="curate corrections",
    summary="Write a dataset with the decisions made in Label Studio.",
    examples=(
        "curate corrections answers.json my_photos corrected",
        "curate corrections answers.json my_photos corrected --format jsonl",
    ),
    add_arguments=_corrections_arguments,
    call=_corrections,
)
