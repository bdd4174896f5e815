"""``captioning report``: write pages and figures on the results of runs."""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioning.commands.command import PlainCommand
from captioning.commands.first_look import look_for_runs
from captioning.commands.quick_imports import quick_imports
from captioning.config.plugins import import_plugins

if TYPE_CHECKING:
    from captioning.training.settings import TrainSettings

log = logging.getLogger(__name__)

SEVERAL = Path("comparison.html")
PARTIAL = "report-partial.html"  # of a run that has a whole page, when parts cannot be read
NUM_PICTURES = 600


def _arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("runs", nargs="+", type=Path, help="run folder; several folders are compared")
    add("--out", type=Path, help=f"page; default RUN/report.html, for several {SEVERAL}")
    add("--pictures", type=int, default=NUM_PICTURES, help="photos on the page of edits (600)")
    add("--no-figures", action="store_true", help="write no SVG and PDF beside the page")
    add("--plugins", nargs="+", default=[], metavar="PACKAGE", help="your own packages to import")


def _report(options: Namespace) -> int:
    look_for_runs(options.runs)
    with quick_imports():
        from curation.review.runs.reading import find_runs

    if options.pictures < 0:
        raise ValueError(f"--pictures must be at least 0: got {options.pictures}")
    import_plugins(options.plugins)
    folders = find_runs(options.runs)
    if len(folders) == 1:
        return _report_one(folders[0], options)
    return _report_several(folders, options)


def _report_one(folder: Path, options: Namespace) -> int:
    with quick_imports():
        from captioning.vision.photo_places import photo_exists
        from curation.review.edit_report import write_report
        from curation.review.runs.reading import read_finished_run
        from curation.review.runs.run_page import EDITS, FILE_NAME, write_run_page

    page = options.out or folder / FILE_NAME
    if options.out is None and page.is_file():
        _require_plugins(folder, options.plugins)
    run = read_finished_run(folder)
    notes = [*run.notes]
    if options.out is None and page.is_file() and notes:
        page = folder / PARTIAL
        notes.append(f"the complete {FILE_NAME} is kept; the incomplete page is {PARTIAL}")
    in_place = options.out is None and page.name == FILE_NAME
    edits = folder / EDITS if in_place else _beside(page, "edits.html")
    record = run.record
    if record is not None:
        num_listed = write_report(record, edits, num_pictures=options.pictures)
        print(f"{edits}: {num_listed} of {len(record.view.journal)} edits listed, {_size(edits)}")
        if not any(photo_exists(sample.image_path) for sample in record.view.roster.samples):
            print("no photo is shown: the run had features alone, and there are no photos")
    more = write_run_page(run, page, defaults=_defaults, edits=None if record is None else edits)
    notes += [note for note in more if note not in notes]
    _figures([run], page, in_place, options)
    return _tell(page, [f"{folder}: {note}" for note in notes])


def _require_plugins(folder: Path, given: Sequence[str]) -> None:
    """Raise an error if a page would lack data of the user's packages that the old page has."""
    from captioning.results.folder_config import read_folder_config

    try:
        plugins = read_folder_config(folder / "config.yaml").get("plugins")
    except (ValueError, OSError):  # the page says what is damaged
        return
    named = [str(name) for name in plugins] if isinstance(plugins, Sequence) else []
    if lacking := [name for name in named if name not in given]:
        raise ValueError(
            f"{folder} was made with its user's packages: add --plugins {' '.join(lacking)}, as a "
            f"folder alone does not import packages; or --out FILE for a page without their data"
        )


def _report_several(folders: list[Path], options: Namespace) -> int:
    with quick_imports():
        from curation.review.runs.reading import read_finished_run
        from curation.review.runs.runs_page import write_runs_page

    runs = [read_finished_run(folder) for folder in folders]
    page = options.out or SEVERAL
    notes = write_runs_page(runs, page)
    _figures(runs, page, False, options)
    return _tell(page, notes)


def _figures(runs: list[Any], page: Path, in_run: bool, options: Namespace) -> None:
    if options.no_figures:
        return
    with quick_imports():  # matplotlib takes long
        from curation.review.runs.run_figures import draw_figures

    folder = page.parent / "plots" if in_run else _beside(page, "plots")
    if paths := draw_figures(runs, folder):
        print(f"{folder}: {', '.join(paths)}, each as SVG and PDF")


def _tell(page: Path, notes: Sequence[str]) -> int:
    """Print the page's location and what it leaves out; return the exit status."""
    for note in notes:
        print(f"report: {note}", file=sys.stderr)
    print(f"{page}: {_size(page)}; open it in a browser")
    return 1 if notes else 0


def _beside(page: Path, name: str) -> Path:
    return page.with_name(f"{page.stem}-{name}")


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


def _defaults() -> Mapping[str, Any]:
    """Default config of a training."""
    from omegaconf import OmegaConf

    from captioning.config.compose import compose_config

    config: Any = OmegaConf.to_container(compose_config("train"), resolve=True)
    return config


def report_ended(settings: TrainSettings, datamodule: Any) -> None:
    """Write the page of a finished run, if its settings ask for a page.

    Errors are logged but not raised, as the run itself is finished.

    Args:
        settings: the run's settings.
        datamodule: the run's `captioning.data.batches.datamodule.CaptionDataModule`; None: the run
            had ended before, and only a missing page is written.
    """
    if not settings.report:
        return
    folder = Path(settings.run_dir)
    try:
        with quick_imports():
            from curation.review.runs.reading import Rosters, read_finished_run
            from curation.review.runs.run_page import EDITS, FILE_NAME, write_run_page

        if datamodule is None and (folder / FILE_NAME).is_file():
            return
        known = datamodule is not None
        rosters = Rosters(train=datamodule.view, test=datamodule.test) if known else None
        run = read_finished_run(folder, rosters)
        write_run_page(run, folder / FILE_NAME, defaults=_defaults, edits=folder / EDITS)
    except Exception as error:  # noqa: BLE001
        log.warning(
            f"{folder}: the run is finished, but its page could not be written "
            f"({type(error).__name__}: {error}); try captioning report {folder}"
        )


REPORT = PlainCommand(
    name="report",
    summary="Show the events and results of a run, or compare runs, as an HTML page and figures.",
    examples=(
        "report runs/my_run/seed0",
        "report runs --out comparison.html",
    ),
    add_arguments=_arguments,
    call=_report,
)
