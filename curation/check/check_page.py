"""The HTML page of a check: its findings, and the worst captions of each kind with their photos."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np

from captioning.runtime.files import write_text
from captioning.vision.photo_places import place_in_shard
from curation.base import SentenceDoubt
from curation.check.checks import Check
from curation.check.mend import Flagged, Replacement, flagged_elsewhere
from curation.check.sentence_checks import NAME as SENTENCES
from curation.check.word_checks import NAME as WORDS
from curation.review.html_page import block, build_page, pack, short, thumbnails

NUM_LEFT_OUT = 200
MAX_PICTURES, MAX_BYTES = 600, 12_000_000
UNSURE = ("fit", WORDS)  # checks of which the page shows what comes next, too
NUM_UNSURE, LEAST_UNSURE = 10, 0.01  # captions, and their least chance of a fault
NUM_OTHERS = 9  # other captions of a photo that a card shows


class Checked(Flagged, Protocol):
    """Data of a page about a `curation.check.result.CheckResult`."""

    @property
    def source(self) -> str:
        """Folder that was checked."""
        ...

    @property
    def checks(self) -> Sequence[Check]:
        """Checks that were made on the folder."""
        ...

    def expected_precision(self, name: str) -> float | None:
        """Expected precision of a check's flags."""
        ...

    def reason(self, name: str, row: int) -> str:
        """Reason why a check flags a caption."""
        ...

    def replacement(self, row: int) -> Replacement | None:
        """Caption with its most doubtful word replaced."""
        ...

    def worst_sentence(self, row: int) -> SentenceDoubt | None:
        """Sentence of a long caption that fits the photo least."""
        ...

    def second_look(self, row: int) -> str:
        """Verdict of the judge on a caption."""
        ...

    def told(self) -> Sequence[str]:
        """Notes on the whole checked dataset, for the page."""
        ...

    def summary(self) -> str:
        """Lines of the summary; the first line is for the head of the page."""
        ...


def write_page(result: Checked, path: str | Path, *, num_shown: int = 24) -> None:
    """Write the page, which opens without a network connection.

    Args:
        result: a check's result.
        path: the HTML file.
        num_shown: captions of each kind, the worst first.
    """
    worst = {check.name: worst_rows(result, check, num_shown) for check in result.checks}
    next_ones = {check.name: less_sure(result, check) for check in result.checks}
    samples, home = result.roster.samples, Path(path).parent
    rows = [row for found in (*worst.values(), *next_ones.values()) for row in found]
    shown = [samples[row].image_path for row in rows]
    pictures = thumbnails(shown, max_pictures=MAX_PICTURES, max_bytes=MAX_BYTES)
    numbers = {photo: number for number, photo in enumerate(pictures)}
    facts = {
        "source": Path(result.source).name,
        "head": result.summary().partition("\n")[0],
        "groups": [
            _group(result, check)
            | {
                key: [_item(result, check, row, numbers, home) for row in rows[check.name]]
                for key, rows in (("items", worst), ("less_sure", next_ones))
            }
            for check in result.checks
        ],
        "next": _next_steps(result, home),
        "notes": result.told(),
        "left_out": [[short(d.item), d.rule] for d in result.roster.dropped[:NUM_LEFT_OUT]],
    }
    blocks = [block("facts", pack(facts)), *(block("picture", text) for text in pictures.values())]
    page = build_page(
        "check.html",
        title=f"Check of {Path(result.source).name}",
        scripts=("dom.js", "unpack.js", "check.js"),
        data="\n".join(blocks),
    )
    write_text(path, page)


def worst_rows(result: Checked, check: Check, number: int) -> list[int]:
    """Rows that a check flags, worst first; each photo once, as long as further photos exist."""
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


def less_sure(result: Checked, check: Check) -> list[int]:
    """The ten unflagged rows just below the threshold of a check in `UNSURE`."""
    if check.name not in UNSURE:
        return []
    values = np.nan_to_num(result.scores[check.name].values)
    flagged = np.any([result.flags[name] for name in {check.name, *result.removing}], axis=0)
    rows = np.flatnonzero((values >= LEAST_UNSURE) & ~flagged)
    return rows[np.argsort(-values[rows], kind="stable")][:NUM_UNSURE].tolist()


def _next_steps(result: Checked, home: Path) -> list[list[str]]:
    """The next steps for the user with their commands; empty if no folder was checked."""
    if not Path(result.source).is_dir():
        return []
    source, out = shlex.quote(str(result.source)), shlex.quote(str(home))
    return [
        ["Look through what is flagged, and keep, remove or correct it",
         f"captioning app {out} --photos {source}"],
        ["Write the set without what is flagged",
         f"captioning check {source} --out {out} --export imagefolder"],
    ]  # fmt: skip


def _group(result: Checked, check: Check) -> dict[str, Any]:
    return {
        "name": check.name,
        "title": check.title,
        "measures": check.measures,
        "low_is_bad": check.low_is_bad,
        "threshold": result.thresholds[check.name],
        "count": int(result.flags[check.name].sum()),
        "precision": result.expected_precision(check.name),
        "kept": check.name not in result.removing,
    }


def _item(
    result: Checked, check: Check, row: int, numbers: dict[Path, int], home: Path
) -> dict[str, Any]:
    samples = result.roster.samples
    sample = samples[row]
    others = [r for r in result.roster.rows_by_image[sample.image_id] if r != row]
    return {
        "caption": short(sample.caption),
        "file": sample.image_path.name,
        "reason": short(result.reason(check.name, row)),
        "judged": short(result.second_look(row)),
        "value": _shown(check, float(result.scores[check.name].values[row])),
        "photo": numbers.get(sample.image_path, -1),
        "link": _link(sample.image_path, home),
        "others": [short(samples[other].caption) for other in others[:NUM_OTHERS]],
        "changed": _changed(
            sample.caption, result.replacement(row) if check.name == WORDS else None
        ),
        "marked": _marked(sample.caption, result.worst_sentence(row))
        if check.name in (SENTENCES, "fit")
        else None,
    }


def _link(photo: Path, home: Path) -> str | None:
    """Link to a photo, relative to the page; None for a photo in a shard."""
    if place_in_shard(photo) is not None:
        return None
    return quote(os.fsencode(Path(os.path.relpath(photo, home)).as_posix()))


def _shown(check: Check, value: float) -> str:
    """Format a value for the page; an estimated probability is never shown as 0 or 1."""
    if check.is_chance:
        return "over 0.99" if value > 0.99 else f"{value:.2f}"
    return f"{value:.3g}"


def _marked(caption: str, worst: SentenceDoubt | None) -> list[str] | None:
    """Split a caption into the text before the worst sentence, this sentence, and the rest."""
    if worst is None:
        return None
    parts = (caption[: worst.start], worst.sentence, caption[worst.stop :])
    return [short(text) for text in parts]


def _changed(caption: str, new: Replacement | None) -> list[str] | None:
    """Split a caption at a wrong word: text before, the word, its correction, and text after."""
    if new is None:
        return None
    start, stop = new.doubt.start, new.doubt.start + len(new.doubt.word)
    words = (caption[:start], caption[start:stop], new.doubt.alternative, caption[stop:])
    return [short(text) for text in words]
