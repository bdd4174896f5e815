"""What was changed and why, as one HTML page that needs no network: `captioning report RUN`.

::

    captioning report RUN [--out PAGE.html] [--pictures N]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from captioning.runtime.files import write_text
from curation.record import Change, RunRecord, changes
from curation.review.edits.edit_list import chunks, item, pack
from curation.review.edits.facts import facts, lost_images, most_often_changed, worst
from curation.review.page import build_page
from curation.review.thumbnails import thumbnails

FILE_NAME = "report.html"
MAX_BYTES = 50_000_000
MAX_PICTURE_BYTES = 12_000_000
NUM_LOST_SHOWN = 24


def write_report(record: RunRecord, path: str | Path, *, num_pictures: int) -> int:
    """Write the page; returns how many edits its list holds.

    The page is at most `MAX_BYTES` long: edits that do not fit are left out of the list, and the
    page says so.

    Args:
        record: of the run.
        path: the HTML file.
        num_pictures: how many photos are shown, the most telling first.
    """
    change_list = list(changes(record.view, record.truth))
    photos = thumbnails(
        _telling_photos(record, change_list), max_pictures=num_pictures, max_bytes=MAX_PICTURE_BYTES
    )
    numbers = {photo: number for number, photo in enumerate(photos)}
    page_facts = facts(record, change_list)
    page_facts["worst"] = [item(change_list[place], numbers) for place in worst(change_list)]
    page_facts["repeated"] = [
        [item(change_list[place], numbers) for place in places]
        for places in most_often_changed(change_list)
    ]
    for shown, lost in zip(
        page_facts["vanished"]["images"]["named"], lost_images(record), strict=False
    ):
        shown["photo"] = numbers.get(lost.image_path, -1)
    blocks = [block("picture", text) for text in photos.values()]
    num_listed = 0
    size = sum(map(len, blocks)) + len(page := _page(record, [block("facts", pack(page_facts))]))
    for number, packed in chunks(change_list, numbers):
        edits = block("edits", packed)
        # the facts will hold one number more
        if size + len(edits) + 100 > MAX_BYTES:
            break
        size += len(edits)
        num_listed += number
        blocks.append(edits)
    page_facts["num_listed"] = num_listed
    page = _page(record, [block("facts", pack(page_facts)), *blocks])
    write_text(path, page)
    return num_listed


def _page(record: RunRecord, blocks: Sequence[str]) -> str:
    return build_page(
        "report.html",
        title=f"Curation of {record.view.roster.name}",
        styles=("base.css", "report.css"),
        scripts=("dom.js", "charts.js", "unpack.js", "edits.js", "cards.js", "report.js"),
        data="\n".join(blocks),
    )


def block(kind: str, text: str) -> str:
    """Packed data for a page; base64 alone."""
    return f'<script type="text/plain" data-kind="{kind}">{text}</script>'


def _telling_photos(record: RunRecord, change_list: Sequence[Change]) -> list[Path]:
    """Photos in the order in which they earn their place on the page."""
    places = [place for places in most_often_changed(change_list) for place in places]
    shown = [change_list[place] for place in (*worst(change_list), *places)]
    photos = [photo for change in shown for photo in _photos(change)]
    photos += [sample.image_path for sample in lost_images(record)[:NUM_LOST_SHOWN]]
    return photos + [photo for change in change_list for photo in _photos(change)]


def _photos(change: Change) -> list[Path]:
    return [path for path in (change.before.image_path, change.new_photo) if path is not None]
