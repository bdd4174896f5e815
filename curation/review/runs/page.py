"""``report.html``: what happened in a run, on one page that needs no network."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from captioning.runtime.files import write_text
from curation.record import Change, changes
from curation.review.edits.edit_list import pack
from curation.review.edits.report import block
from curation.review.page import build_page
from curation.review.runs import facts
from curation.review.runs.lead import lead, tiles
from curation.review.runs.reading import FinishedRun, Notes
from curation.review.thumbnails import thumbnails

FILE_NAME = "report.html"
MAX_BYTES = 8_000_000
MAX_PICTURES = 100
EDITS = Path("curation") / "report.html"


def write_run_page(
    run: FinishedRun, path: Path, *, defaults: Callable[[], Mapping[str, Any]], edits: Path | None
) -> Sequence[str]:
    """Write the page.

    Args:
        run: see `curation.review.runs.reading.read_finished_run`.
        path: the HTML file.
        defaults: gives the config of a training without any choice.
        edits: the page of all edits, which this one links to if it is there.

    Returns:
        What is left out of it, a line each.
    """
    change_list = [] if run.record is None else list(changes(run.record.view, run.record.truth))
    photos = thumbnails(
        _telling_photos(run, change_list), max_pictures=MAX_PICTURES, max_bytes=MAX_BYTES
    )
    numbers = {photo: number for number, photo in enumerate(photos)}
    link = None if edits is None or not edits.is_file() else os.path.relpath(edits, path.parent)
    content: dict[str, Any] = run_facts(run, change_list, numbers, defaults)
    content |= {"edits_page": link}
    blocks = [block("facts", pack(content)), *(block("picture", text) for text in photos.values())]
    write_text(path, page_of("run", f"Run {run.name}", blocks))
    return content["notes"]


def page_of(name: str, title: str, blocks: Sequence[str]) -> str:
    """A page of runs from ``pages/NAME.html`` and its script, with its data blocks."""
    return build_page(
        f"{name}.html",
        title=title,
        styles=("base.css", "report.css", "run.css"),
        scripts=("dom.js", "charts.js", "unpack.js", "cards.js", "parts.js", f"{name}.js"),
        data="\n".join(blocks),
    )


def run_facts(
    run: FinishedRun,
    change_list: Sequence[Change],
    numbers: Mapping[Path, int],
    defaults: Callable[[], Mapping[str, Any]],
) -> dict[str, Any]:
    """Everything on the page but the pictures; parts that fail are noted in ``notes``.

    Args:
        run: the run.
        change_list: its edits.
        numbers: of the pictures on the page.
        defaults: see `write_run_page`.
    """
    notes = Notes(lines=list(run.notes))

    def part(name: str, make: Callable[[], Any], default: Any = None) -> Any:
        return notes.read(name, run.run.folder, make, default)

    content = {
        "name": run.name,
        "seed": run.seed,
        "lead": part("summary", lambda: lead(run, change_list), []),
        "tiles": part("summary", lambda: tiles(run, change_list), []),
        "losses": part("training loss", lambda: facts.training_curve(run.losses)),
        "validation": part("validation", lambda: facts.validation(run.history, run.start)),
        "test": part("test scores", lambda: facts.corpus_scores(run.run)),
        "examples": part("examples", lambda: facts.examples(run, numbers)),
        "curation": part("curation", lambda: facts.curation(run, change_list, numbers)),
        "settings": part(
            "settings", lambda: facts.changed_settings(run.run.config, defaults()), []
        ),
        "versions": part("versions", lambda: _versions(run), []),
        "timing": [dict(entry) for entry in run.run.timing],
        "dropped": facts.dropped(run),
    }
    return content | {"notes": notes.lines}


def _versions(run: FinishedRun) -> list[tuple[str, str]]:
    known = {name: value for name, value in run.run.versions.items() if name != "resumed"}
    resumed = len(run.run.versions.get("resumed", []))
    rows = [(name, facts.shown(value)) for name, value in known.items()]
    return rows + ([("resumed", f"{resumed} times")] if resumed else [])


def _telling_photos(run: FinishedRun, change_list: Sequence[Change]) -> list[Path]:
    """Photos of the page, examples of the test first."""
    ids = facts.example_ids(run.run).values() if facts.leading_metric(run.run) else ()
    tested = [facts.photo_of(run.test, image_id) for group in ids for image_id in group]
    edited = [
        photo
        for change in facts.before_after(change_list)
        for photo in (change.before.image_path, change.new_photo)
    ]
    return [photo for photo in (*tested, *edited) if photo is not None]
