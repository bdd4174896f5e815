"""``captioning curate apply``: apply a journal's edits to annotations or to a folder."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from captioning.commands.check import add_reading, by_options, reading_of
from captioning.commands.command import PlainCommand
from captioning.commands.curation import (
    EXPORT_FORMATS,
    EXPORT_PHOTOS,
    add_held_out,
    held_out_of,
    without_photos,
)
from captioning.commands.quick_imports import quick_imports

_FILE = "annotations_file"  # beside the annotations that are read as files


def _arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("journal", help="journal of edits, or a run folder")
    add(
        "source", nargs="+", metavar="annotations",
        help="annotations (COCO or Karpathy JSON, token file, JSON Lines, table), or a folder in "
             "any layout of docs/tutorials/own_photos.md",
    )  # fmt: skip
    add("--out", help="new .json (COCO), .jsonl, .csv, .token.txt beside them; or new folder")
    add("--split", choices=("train", "val", "test"), help="split of a Karpathy file or folder")
    add("--images", help="file of the split's images or image ids, one per line")
    formats = [name for name in EXPORT_FORMATS if name != "journal"]
    add("--format", choices=formats, help="format of a new folder (that of the source)")
    add("--photos", choices=EXPORT_PHOTOS, help="none, or copy photos into the format")
    add_held_out(parser)
    add("--seed", type=int, default=0, help="the run's data.seed, which drew the splits (0)")
    add_reading(parser, annotations=_FILE)
    add("--cache", metavar="FOLDER", help="folder for cached hashes of photos (cache)")


def _apply(options: Namespace) -> None:
    with quick_imports():
        from curation.export.apply import Reading, apply_to_files

    given = reading_of(options, annotations=_FILE)
    given = {key: value for key, value in given.items() if value is not None}
    reading = Reading(options=given, seed=options.seed, **held_out_of(options))
    with by_options():
        out, view, format, count = apply_to_files(
            journal=options.journal,
            annotations=options.source,
            out=options.out,
            split=options.split,
            images=options.images,
            format=options.format,
            photos=options.photos,
            reading=reading,
        )
    edits = f"{len(view.journal)} edits made to {len(view.roster):,} captions"
    print(f"{out}: {count:,} captions; {edits}{without_photos(format, options.photos)}")


APPLY = PlainCommand(
    name="curate apply",
    summary="Apply a journal's edits to the dataset that they were decided on.",
    examples=(
        "curate apply runs/my_run/seed0 my_photos --out my_photos_curated",
        "curate apply curation.jsonl captions_train2014.json --out curated.json",
    ),
    add_arguments=_arguments,
    call=_apply,
)
