"""The list of edits as compressed columns, which a page unpacks bit by bit."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from captioning.data.roster import parse_masks
from captioning.types import Edit
from curation.amend.replace_word import parse_origin
from curation.record import Change

CHUNK = 10_000  # edits
MAX_TEXT_LENGTH = 400  # characters of a text in the list
COLUMNS = (
    "id", "image", "epoch", "action", "policy", "reason", "before", "after", "note", "fault",
    "photo", "photo_after", "pieces", "changed",
)  # fmt: skip


def pack(value: Any) -> str:
    """Plain values as JSON, gzip and base64: harmless in HTML, whatever the texts hold."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    data = gzip.compress(text.encode("utf-8", errors="replace"), compresslevel=6, mtime=0)
    return base64.b64encode(data).decode("ascii")


def item(change: Change, pictures: Mapping[Path, int]) -> dict[str, Any]:
    """What the page shows of an edit; pictures by number, -1 where there is none."""
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
        "pieces": _pieces(before.caption, edit) if edit.action == "mask_words" else None,
        "changed": _changed(before.caption, edit),
    }


def chunks(changes: Sequence[Change], pictures: Mapping[Path, int]) -> Iterator[tuple[int, str]]:
    """``(number of edits, packed columns)`` of the list, `CHUNK` edits at a time."""
    for start in range(0, len(changes), CHUNK):
        items = [item(change, pictures) for change in changes[start : start + CHUNK]]
        yield len(items), pack({name: [entry[name] for entry in items] for name in COLUMNS})


def _pieces(caption: str, edit: Edit) -> list[str]:
    """The caption cut at its masked spans: every second piece is masked."""
    cuts = [0, *(end for mask in parse_masks(edit.value or "") for end in (mask.start, mask.stop))]
    return [short(caption[start:stop]) for start, stop in pairwise([*cuts, len(caption)])]


def _changed(before: str, edit: Edit) -> list[str] | None:
    """What stands before a replaced word, the old and the new word, and what stands after it."""
    word = edit.action == "replace_caption" and parse_origin(edit.origin)
    if not word:
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


def short(text: str) -> str:
    """A text of at most `MAX_TEXT_LENGTH` characters."""
    return text if len(text) <= MAX_TEXT_LENGTH else text[: MAX_TEXT_LENGTH - 1] + "…"
