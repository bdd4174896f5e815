"""The page of a check: what was found, and the worst captions of each kind beside their photos."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from captioning.files import write_text
from curation.check.checks import Check
from curation.check.mend import Flagged, Replacement, flagged_elsewhere
from curation.check.words import NAME as WORDS
from curation.report.edit_list import pack, short
from curation.report.page import build_page
from curation.report.report import block
from curation.report.thumbnails import thumbnails

NUM_LEFT_OUT = 200
MAX_PICTURES, MAX_BYTES = 600, 12_000_000


class Checked(Flagged, Protocol):
    """What a page shows of a `curation.check.result.CheckResult`."""

    @property
    def source(self) -> str:
        """The folder."""
        ...

    @property
    def checks(self) -> Sequence[Check]:
        """The checks that were made."""
        ...

    def expected_precision(self, name: str) -> float | None:
        """Of what a check flags."""
        ...

    def reason(self, name: str, row: int) -> str:
        """Why a check flags a caption."""
        ...

    def replacement(self, row: int) -> Replacement | None:
        """A caption with its most doubted word replaced."""
        ...

    def told(self) -> Sequence[str]:
        """Notes on the whole set."""
        ...

    def summary(self) -> str:
        """Lines of text, the first for the head of the page."""
        ...


def write_page(result: Checked, path: str | Path, *, num_shown: int = 24) -> None:
    """Write the page, which needs no network.

    Args:
        result: of a check.
        path: the HTML file.
        num_shown: captions of each kind, the worst first.
    """
    worst = {check.name: worst_rows(result, check, num_shown) for check in result.checks}
    samples = result.roster.samples
    shown = [samples[row].image_path for rows in worst.values() for row in rows]
    pictures = thumbnails(shown, max_pictures=MAX_PICTURES, max_bytes=MAX_BYTES)
    numbers = {photo: number for number, photo in enumerate(pictures)}
    facts = {
        "source": Path(result.source).name,
        "head": result.summary().partition("\n")[0],
        "groups": [_group(result, check, worst[check.name], numbers) for check in result.checks],
        "notes": result.told(),
        "left_out": [[short(d.item), d.rule] for d in result.roster.dropped[:NUM_LEFT_OUT]],
    }
    blocks = [block("facts", pack(facts)), *(block("picture", text) for text in pictures.values())]
    page = build_page(
        "check.html",
        title=f"Check of {Path(result.source).name}",
        styles=("base.css", "check.css"),
        scripts=("dom.js", "unpack.js", "check.js"),
        data="\n".join(blocks),
    )
    write_text(path, page)


def worst_rows(result: Checked, check: Check, number: int) -> list[int]:
    """Rows that a check flags, the worst first, a photo once as long as there are others."""
    rows = np.flatnonzero(result.flags[check.name])
    values = result.scores[check.name].values[rows]
    order = rows[np.argsort(values if check.low_is_bad else -values, kind="stable")].tolist()
    if check.name == WORDS:  # words of a caption of another photo are wrong, too, but no news
        elsewhere = flagged_elsewhere(result)
        order.sort(key=lambda row: bool(elsewhere[row]))
    samples = result.roster.samples
    first: dict[str, int] = {}
    for row in order:
        first.setdefault(samples[row].image_id, row)
    again = [row for row in order if first[samples[row].image_id] != row]
    return [*first.values(), *again][:number]


def _group(
    result: Checked, check: Check, rows: Sequence[int], numbers: dict[Path, int]
) -> dict[str, Any]:
    return {
        "name": check.name,
        "title": check.title,
        "measures": check.measures,
        "low_is_bad": check.low_is_bad,
        "threshold": result.thresholds[check.name],
        "count": int(result.flags[check.name].sum()),
        "precision": result.expected_precision(check.name),
        "items": [_item(result, check, row, numbers) for row in rows],
    }


def _item(result: Checked, check: Check, row: int, numbers: dict[Path, int]) -> dict[str, Any]:
    sample = result.roster.samples[row]
    return {
        "caption": short(sample.caption),
        "file": sample.image_path.name,
        "reason": short(result.reason(check.name, row)),
        "value": _shown(check, float(result.scores[check.name].values[row])),
        "photo": numbers.get(sample.image_path, -1),
        "changed": _changed(
            sample.caption, result.replacement(row) if check.name == WORDS else None
        ),
    }


def _shown(check: Check, value: float) -> str:
    """A value for people; an estimated chance is never shown as certain."""
    if check.is_chance:
        return "over 0.99" if value > 0.99 else f"{value:.2f}"
    return f"{value:.3g}"


def _changed(caption: str, new: Replacement | None) -> list[str] | None:
    """What stands before a wrong word, the word, what should stand there, and what follows."""
    if new is None:
        return None
    start, stop = new.doubt.start, new.doubt.start + len(new.doubt.word)
    words = (caption[:start], caption[start:stop], new.doubt.alternative, caption[stop:])
    return [short(text) for text in words]
