"""Show a run's edits and their reasons on one offline HTML page: `captioning report RUN`.

::

    captioning report RUN [--out PAGE.html] [--pictures N]
"""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from captioning.data.roster import parse_masks
from captioning.runtime.files import write_text
from captioning.text.sentence_spans import without
from captioning.types import Edit, Sample
from curation.amend.replace_word import parse_origin
from curation.amend.sentences import parse_origin as parse_sentences
from curation.amend.sentences import removed_spans
from curation.loop.planted_faults import count_kinds
from curation.record import Change, RunRecord, changes
from curation.review.html_page import block, build_page, pack, short, thumbnails

FILE_NAME = "report.html"
MAX_BYTES = 50_000_000
MAX_PICTURE_BYTES = 12_000_000
NUM_LOST_SHOWN = 24


def write_report(record: RunRecord, path: str | Path, *, num_pictures: int) -> int:
    """Write the page, and return the number of edits in its list.

    The page is at most `MAX_BYTES` long: edits that do not fit are left out of the list, and the
    page states this.

    Args:
        record: the run's record.
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
        # the facts will get one more number
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
        scripts=("dom.js", "charts.js", "unpack.js", "edits.js", "cards.js", "report.js"),
        data="\n".join(blocks),
    )


def _telling_photos(record: RunRecord, change_list: Sequence[Change]) -> list[Path]:
    """Order photos by how much they tell the reader about the edits."""
    places = [place for places in most_often_changed(change_list) for place in places]
    shown = [change_list[place] for place in (*worst(change_list), *places)]
    photos = [photo for change in shown for photo in _photos(change)]
    photos += [sample.image_path for sample in lost_images(record)[:NUM_LOST_SHOWN]]
    return photos + [photo for change in change_list for photo in _photos(change)]


def _photos(change: Change) -> list[Path]:
    return [path for path in (change.before.image_path, change.new_photo) if path is not None]


NUM_WORST = 12  # number of cards for each epoch
NUM_REPEATED = 12
NUM_VANISHED = 500  # number of listed images and words; further ones are only counted
NUM_BINS = 48
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")


def facts(record: RunRecord, changes: Sequence[Change]) -> dict[str, Any]:
    """All data of the page except the list of edits and the images.

    Args:
        record: the run's record.
        changes: its edits, from `curation.record.changes`.
    """
    view = record.view
    return {
        "roster": view.roster.name,
        "fingerprint": view.roster.fingerprint,
        "policy": record.policy,
        "seed": record.seed,
        "num_samples": len(view.roster),
        "num_left": len(view.samples()),
        "num_edits": len(changes),
        "num_edited": len({change.edit.sample_id for change in changes}),
        "actions": count_actions(changes),
        "epochs": [dict(entry) for entry in record.records],
        "truth": truth_facts(record, changes),
        "curves": loss_curves(record, changes),
        "histograms": histograms(record, changes),
        "vanished": {"images": vanished_images(record), "words": vanished_words(record)},
        "keep": None if record.keep is None else record.keep.to_dict(),
    }


def count_actions(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """Count the edits of each epoch by policy and action."""
    counts = Counter(
        (change.edit.epoch, change.edit.policy, change.edit.action) for change in changes
    )
    return [
        {"epoch": epoch, "policy": policy, "action": action, "count": count}
        for (epoch, policy, action), count in sorted(counts.items())
    ]


def truth_facts(record: RunRecord, changes: Sequence[Change]) -> dict[str, Any] | None:
    """Count edited samples that really were faulty, by epoch and kind; None if unknown."""
    if not record.truth:
        return None
    edits = Counter(change.edit.epoch for change in changes)
    hits = Counter(change.edit.epoch for change in changes if change.fault)
    caught: dict[str, set[str]] = defaultdict(set)
    for change in changes:
        if change.fault:
            caught[change.fault].add(change.edit.sample_id)
    mends = Counter((change.fault, change.mend) for change in changes if change.mend)
    planted = count_kinds(record.truth, list(record.truth))
    return {
        "rate": len(record.truth) / len(record.view.roster),
        "epochs": [
            {"epoch": epoch, "edits": edits[epoch], "hits": hits[epoch]} for epoch in sorted(edits)
        ],
        "kinds": [
            {"kind": kind, "planted": count, "caught": len(caught[kind])}
            | {"mended": mends[kind, "right"], "mended_wrongly": mends[kind, "wrong"]}
            for kind, count in planted.items()
        ],
        "words_replaced": sum(mends.values()),
        "replaced_needlessly": mends["", "needless"],
    }


def loss_curves(record: RunRecord, changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Mean loss by epoch for each group of samples; None for a group that was never seen.

    An edited sample counts until its first edit, so that its line shows the bad pairs.
    """
    if not len(record.epochs):
        return []
    by_id = record.view.roster.by_id
    first: dict[int, int] = {}
    for change in changes:
        first.setdefault(by_id[change.edit.sample_id].row, change.edit.epoch)
    until = np.full(len(record.view.roster), np.inf)
    until[list(first)] = list(first.values())
    in_time = np.asarray(record.epochs)[:, None] <= until[None, :]
    losses = np.where(in_time, record.history, np.nan)
    groups = {"never edited": np.isinf(until), "edited (before it)": np.isfinite(until)}
    if record.truth:
        faulty = np.zeros(len(until), dtype=bool)
        faulty[[by_id[sample_id].row for sample_id in record.truth]] = True
        groups |= {"planted faults": faulty, "sound": ~faulty}
    lines = {"all": np.ones(len(until), dtype=bool), **groups}
    return [
        {"name": name, "epochs": list(record.epochs), "values": _means(losses[:, rows])}
        for name, rows in lines.items()
        if rows.any()
    ]


def _means(losses: np.ndarray) -> list[float | None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # for an epoch without losses
        means: Any = np.nanmean(losses, axis=1, dtype=np.float64).tolist()
    return [None if np.isnan(value) else round(value, 4) for value in means]


def histograms(record: RunRecord, changes: Sequence[Change]) -> dict[str, Any] | None:
    """Loss histograms of each epoch: all seen samples, edited samples and faulty samples."""
    seen = record.history[np.isfinite(record.history)]
    if not len(seen):
        return None
    top = max(float(np.quantile(seen, 0.999)), float(seen.min()) + 1e-6)
    edges = np.linspace(float(seen.min()), top, NUM_BINS + 1)
    by_id = record.view.roster.by_id
    edited: dict[int, list[int]] = defaultdict(list)
    for change in changes:
        edited[change.edit.epoch].append(by_id[change.edit.sample_id].row)
    faulty = [by_id[sample_id].row for sample_id in record.truth]
    return {
        "edges": [round(float(edge), 4) for edge in edges],
        "epochs": [
            {
                "epoch": int(epoch),
                "seen": _counts(losses, edges),
                "edited": _counts(losses[edited[epoch]], edges),
                "faulty": _counts(losses[faulty], edges) if faulty else None,
            }
            for epoch, losses in zip(record.epochs, record.history, strict=True)
        ],
    }


def _counts(losses: np.ndarray, edges: np.ndarray) -> list[int]:
    # the few values beyond the last edge count in the last bin
    values = np.clip(losses[np.isfinite(losses)], edges[0], edges[-1])
    return np.histogram(values, edges)[0].tolist()


def worst(changes: Sequence[Change]) -> list[int]:
    """Positions of the first edits of each epoch, which concern the worst samples."""
    taken: Counter[int] = Counter()
    positions = []
    for position, change in enumerate(changes):
        if taken[change.edit.epoch] < NUM_WORST:
            taken[change.edit.epoch] += 1
            positions.append(position)
    return positions


def most_often_changed(changes: Sequence[Change]) -> list[list[int]]:
    """Positions of the edits of the most often edited samples, each edited at least twice."""
    positions: dict[str, list[int]] = defaultdict(list)
    for position, change in enumerate(changes):
        positions[change.edit.sample_id].append(position)
    repeated = [edits for edits in positions.values() if len(edits) > 1]
    return sorted(repeated, key=lambda edits: (-len(edits), edits[0]))[:NUM_REPEATED]


def lost_images(record: RunRecord) -> list[Sample]:
    """First caption of each image that no live sample shows any more."""
    shown = {sample.image_path for sample in record.view.samples()}
    first = {sample.image_path: sample for sample in reversed(record.view.roster.samples)}
    return [sample for path, sample in reversed(first.items()) if path not in shown]


def vanished_images(record: RunRecord) -> dict[str, Any]:
    """Images that lost all captions, or that were replaced in all their samples."""
    lost = lost_images(record)
    named = [
        {"image": sample.image_id, "caption": sample.caption} for sample in lost[:NUM_VANISHED]
    ]
    return {"count": len(lost), "of": len(record.view.roster.rows_by_image), "named": named}


def vanished_words(record: RunRecord) -> dict[str, Any]:
    """Words of the roster that no live caption contains, most frequent first."""
    before = count_words(sample.caption for sample in record.view.roster.samples)
    after = count_words(sample.caption for sample in record.view.samples())
    lost = sorted((-count, word) for word, count in before.items() if word not in after)
    named = [{"word": word, "count": -count} for count, word in lost[:NUM_VANISHED]]
    return {"count": len(lost), "of": len(before), "named": named}


def count_words(captions: Iterable[str]) -> Counter[str]:
    """Count words in lower case; a word is letters with ``'`` and ``-`` inside."""
    counts: Counter[str] = Counter()
    for caption in captions:
        counts.update(_WORD.findall(caption.lower()))
    return counts


CHUNK = 10_000  # edits
COLUMNS = (
    "id", "image", "epoch", "action", "policy", "reason", "before", "after", "note", "fault",
    "photo", "photo_after", "pieces", "changed",
)  # fmt: skip


def item(change: Change, pictures: Mapping[Path, int]) -> dict[str, Any]:
    """The page's data on an edit; images by number, and -1 without an image."""
    edit, before = change.edit, change.before
    return {
        "id": edit.sample_id,
        "image": before.image_id,
        "epoch": edit.epoch,
        "action": edit.action,
        "policy": edit.policy,
        "reason": short(edit.reason),
        "before": short(before.caption),
        "after": short(edit.value or "") if edit.action == "replace_caption" else None,
        "note": _note(edit),
        "fault": change.fault,
        "photo": pictures.get(before.image_path, -1),
        "photo_after": -1 if change.new_photo is None else pictures.get(change.new_photo, -1),
        "pieces": _pieces(before.caption, edit),
        "changed": _changed(before.caption, edit),
    }


def chunks(changes: Sequence[Change], pictures: Mapping[Path, int]) -> Iterator[tuple[int, str]]:
    """Pack the list of edits in chunks of `CHUNK`: ``(number of edits, packed columns)``."""
    for start in range(0, len(changes), CHUNK):
        items = [item(change, pictures) for change in changes[start : start + CHUNK]]
        yield len(items), pack({name: [entry[name] for entry in items] for name in COLUMNS})


def _pieces(caption: str, edit: Edit) -> list[str] | None:
    """Split a caption at masked spans or removed sentences, which are every second piece."""
    if edit.action == "mask_words":
        spans = parse_masks(edit.value or "")
    else:
        spans = removed_spans(edit.origin) if edit.action == "replace_caption" else ()
        # unlike in a journal that was edited by hand
        spans = spans if spans and without(caption, spans) == edit.value else ()
    if not spans:
        return None
    cuts = [0, *(end for span in spans for end in (span.start, span.stop))]
    return [short(caption[start:stop]) for start, stop in pairwise([*cuts, len(caption)])]


def _changed(before: str, edit: Edit) -> list[str] | None:
    """Text before a replaced word, the old word, the new word, and the text after it.

    Replaced sentences have the same form; with several, the text between them precedes the next
    pair.
    """
    if edit.action != "replace_caption":
        return None
    if sentences := parse_sentences(edit.origin):
        pieces = sentences.pieces(before, edit.value or "")
        return pieces and [short(piece) for piece in pieces]
    word = parse_origin(edit.origin)
    if word is None:
        return None
    start, stop = word.start, word.start + len(word.old)
    if before[start:stop] != word.old:  # such as in a journal that was edited by hand
        return None
    after = (edit.value or "").removesuffix(before[stop:])
    words = (before[:start], word.old, after[len(after) - len(word.new) :], before[stop:])
    return [short(text) for text in words]


def _note(edit: Edit) -> str:
    if edit.action == "down_weight":
        return f"weight {edit.value}"
    if edit.action == "mask_words":
        return f"characters {short(edit.value or '')}"
    if edit.action == "set_bucket":
        return f"bucket {edit.value}"
    return "" if edit.action == "remove" else short(edit.origin)
