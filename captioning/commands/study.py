"""``captioning curate study``: let people annotate images in Label Studio."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path

from captioning.commands.command import PlainCommand
from captioning.runtime.files import is_taken

REMOVED = {
    "store": "give the export of Label Studio, or an earlier study.sqlite, as --answers FILE",
    "host": "people annotate in Label Studio: write its tasks by --out FOLDER",
    "port": "people annotate in Label Studio: write its tasks by --out FOLDER",
}


def _arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("images", help="folder with manifest.jsonl or .csv, or a run folder")
    add("--out", metavar="FOLDER", help="new or empty folder for Label Studio tasks")
    add("--root", metavar="FOLDER", help="root folder that images are served from")
    add("--url", metavar="ADDRESS", help="URL prefix of image paths below the root")
    add("--answers", metavar="FILE", help="JSON export of Label Studio")
    add("--results", metavar="FOLDER", help="folder for the results of the answers")
    add("--within", nargs="+", default=[], help="further folders of images")
    add("--sets", type=int, default=5, help="maximum number of sets (5)")
    add("--set-size", type=int, default=20, help="images per set (20)")
    add("--seed", type=int, default=0, help="seed of the division into sets (0)")
    add("--annotations", type=int, default=3, help="number of annotations per image (3)")
    for name in REMOVED:
        add(f"--{name}", help=SUPPRESS)


def _check(options: Namespace) -> None:
    for name, successor in REMOVED.items():
        if getattr(options, name) is not None:
            raise ValueError(f"--{name} no longer exists; {successor} (docs/cards/study.md)")
    if options.out is None and options.results is None:
        raise ValueError(
            "write tasks for Label Studio by --out FOLDER, or what people answered by "
            "--answers FILE --results FOLDER (docs/cards/study.md)"
        )
    if (options.answers is None) != (options.results is None):
        raise ValueError("--answers FILE and --results FOLDER need each other")
    if options.out is not None and options.results is not None:
        raise ValueError("--out writes tasks, and --results reads answers: give one of them")
    if options.results is not None and (options.root or options.url):
        raise ValueError("--root and --url belong to --out")
    if options.out is not None and is_taken(Path(options.out)):
        raise ValueError(f"--out {options.out} holds something already; choose a new folder")


def _call(options: Namespace) -> None:
    _check(options)
    from curation.review.suspects.label_studio import LOCAL_FILES
    from curation.study.answers import read_answers, told, write_results, write_tasks
    from curation.study.items import divide, read_items

    items = read_items(options.images, options.within)
    placed = divide(items, num_sets=options.sets, size=options.set_size, seed=options.seed)
    if options.results is not None:
        answers = read_answers(options.answers, placed)
        summary = write_results(placed, answers, options.results, num_required=options.annotations)
        print(f"{options.results}: {told(summary)}")
        return
    root = None if options.root is None else Path(options.root)
    address = options.url or LOCAL_FILES
    root = write_tasks(placed, Path(options.out), root=root, address=address)
    sets = len({entry.set_number for entry in placed})
    print(
        f"{options.out}: {len(placed)} tasks in {sets} sets, pictures below {root}; interface.xml "
        "sets the project up"
    )


STUDY = PlainCommand(
    name="curate study",
    summary="Let people annotate the errors of images in Label Studio.",
    examples=(
        "curate study pictures --out tasks",
        "curate study pictures --answers answers.json --results results",
    ),
    add_arguments=_arguments,
    call=_call,
)
