"""Collect suspected captions: flagged by a check, changed by a run, or with the highest losses.

`write_fiftyone` writes them in the layout of ``fiftyone.types.FiftyOneDataset``, without FiftyOne:
``metadata.json``, and ``samples.json`` with a serialised sample a photo. Without a version in the
metadata FiftyOne takes the fields from the samples, which does for every version of it.
"""

from __future__ import annotations

import csv
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from captioning.runtime.files import write_json
from captioning.text.sentence_spans import without
from captioning.text.word_rows import replace_word
from captioning.types import Edit, MaskedSpan, Sample
from captioning.vision.photo_places import photo_exists, place_in_shard
from curation.base import REPLACING
from curation.check.result import CSV_NAME, LEFT_OUT, of_word_alone
from curation.check.sentence_checks import NAME as SENTENCES
from curation.finished_run import read_run
from curation.record import RunRecord, changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A suspected caption for review.

    Attributes:
        sample_id: the sample's id in the roster.
        photo: path of the photo.
        caption: the caption in the annotations.
        suspicion: suspicion in [0, 1]; None if not measured.
        issues: names of its faults.
        reason: readable reason.
        proposal: another caption for the photo, if there is one.
        others: the photo's other captions, as the annotations have them.
    """

    sample_id: str
    photo: Path
    caption: str
    suspicion: float | None
    issues: tuple[str, ...]
    reason: str
    proposal: str | None = None
    others: tuple[str, ...] = ()


def check_no_shard(photo: Path, why: str) -> None:
    """Raise ValueError for a photo that is not a separate file.

    Args:
        photo: path of the photo.
        why: end of the text "... is in a shard, which".
    """
    if place_in_shard(photo):
        raise ValueError(
            f"{photo} is in a shard, which {why}: export the dataset with its photos first "
            "(captioning check --export imagefolder)"
        )


def read_suspects(source: str | Path, *, top: int | None = None) -> list[Suspect]:
    """Read the suspected captions of a check or of a run.

    Args:
        source: folder that ``captioning check`` wrote, or of a run.
        top: for a run, this many captions with the highest loss in its last epoch, among those
            trained on as annotated; None: the captions that its policy changed.

    Raises:
        FileNotFoundError: the folder holds neither a check nor a run.
        ValueError: there are no suspects, or the file is damaged.
    """
    table = Path(source) / CSV_NAME
    if table.is_file():
        if top is not None:
            raise ValueError(
                f"{table}: --top works only with runs; a check uses its own thresholds"
            )
        suspects = list(_of_table(table))
        if suspects and not any(photo_exists(suspect.photo) for suspect in suspects):
            raise ValueError(
                f"{table}: {suspects[0].photo} and all other photos are missing; run this in the "
                "folder in which captioning check was started"
            )
    else:
        record = read_run(source)
        suspects = list(_changed(record) if top is None else _of_losses(record, top))
    if not suspects:
        raise ValueError(f"{source}: {_reason_of_none(table.is_file(), top)}")
    return suspects


def _reason_of_none(is_check: bool, top: int | None) -> str:
    if is_check:
        return "the check flagged no caption"
    if top is None:
        return "its policy changed no caption; use --top N for the captions of highest loss"
    return "every caption or photo with a loss was replaced; remove --top to see the replaced ones"


def _of_table(path: Path) -> Iterator[Suspect]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        needed = {"file", "sample_id", "caption", "flag", "suspicion", "issues", "reason"}
        if lacking := needed.difference(reader.fieldnames or ()):
            raise ValueError(
                f"{path}: lacks the column {min(lacking)}; run `captioning check` again"
            )
        of_photo: dict[str, dict[str, str]] = defaultdict(dict)
        flagged = []
        for row in reader:
            if row["issues"] != LEFT_OUT:
                of_photo[row["file"]][row["sample_id"]] = row["caption"]
                flagged += [row] if row["flag"] == "True" else []
        for row in flagged:
            yield Suspect(
                sample_id=row["sample_id"],
                photo=Path(row["file"]),
                caption=row["caption"],
                suspicion=float(row["suspicion"]),
                issues=tuple(row["issues"].split(";")),
                reason=row["reason"],
                proposal=_mended(path, row),
                others=tuple(
                    caption
                    for sample_id, caption in of_photo[row["file"]].items()
                    if sample_id != row["sample_id"]
                ),
            )


def _mended(path: Path, row: Mapping[str, str]) -> str | None:
    """Caption with its only wrong word replaced, or its only wrong sentence removed."""
    if row["issues"].split(";") == [SENTENCES] and row.get("sentence"):
        start = int(row["sentence_start"])
        span = MaskedSpan(start=start, stop=start + len(row["sentence"]))
        return without(row["caption"], [span])
    if not of_word_alone(row["issues"].split(";")):
        return None
    try:
        start, word, new = int(row["word_start"]), row["word"], row["replacement"]
        return replace_word(row["caption"], start, word, new)
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{path}: the wrong word of {row['sample_id']} is not in its caption; check the folder "
            "again"
        ) from error


def _changed(record: RunRecord) -> Iterator[Suspect]:
    """Yield a suspect for each changed caption, described by its last edit."""
    last = {change.edit.sample_id: change.edit for change in changes(record.view, record.truth)}
    for name, edit in last.items():
        sample = record.view.roster.by_id[name]
        yield Suspect(
            sample_id=name,
            photo=sample.image_path,
            caption=sample.caption,
            suspicion=None,
            issues=(edit.action,),
            reason=f"{edit.policy}, epoch {edit.epoch}: {edit.reason}",
            proposal=_proposal(edit),
            others=_others(record, sample),
        )


def _of_losses(record: RunRecord, top: int) -> Iterator[Suspect]:
    if top < 1:
        raise ValueError(f"--top must be at least 1: got {top}")
    if not record.epochs:
        raise ValueError("the run recorded no losses; train with curation=track")
    losses, epoch = record.history[-1].copy(), record.epochs[-1]
    by_id, journal = record.view.roster.by_id, record.view.journal
    # their losses belong to other captions or photos than the page shows
    replaced = [e for e in journal if e.epoch < epoch and e.action in REPLACING]
    losses[[by_id[edit.sample_id].row for edit in replaced]] = np.nan
    last = {edit.sample_id: edit for edit in journal}
    seen = np.flatnonzero(~np.isnan(losses))
    for row in seen[np.argsort(-losses[seen], kind="stable")][:top]:
        sample = record.view.roster.samples[row]
        edit = last.get(sample.sample_id)
        reason = f"loss {losses[row]:.2f} nats a token in epoch {epoch}"
        yield Suspect(
            sample_id=sample.sample_id,
            photo=sample.image_path,
            caption=sample.caption,
            suspicion=None,
            issues=("high_loss",),
            reason=reason if edit is None else f"{reason}; {_kept_from(edit)}",
            proposal=_proposal(edit),
            others=_others(record, sample),
        )


def _others(record: RunRecord, sample: Sample) -> tuple[str, ...]:
    roster = record.view.roster
    rows = roster.rows_by_image[sample.image_id]
    return tuple(roster.samples[row].caption for row in rows if row != sample.row)


def _kept_from(edit: Edit) -> str:
    """Name the edit that is undone if a reviewer keeps the caption."""
    return f"keeping it undoes {edit.action} by {edit.policy}, epoch {edit.epoch}"


def _proposal(edit: Edit | None) -> str | None:
    return edit.value if edit is not None and edit.action == "replace_caption" else None


def write_fiftyone(suspects: Sequence[Suspect], folder: Path) -> None:
    """Write ``metadata.json`` and ``samples.json``; photos stay in their folders.

    Raises:
        ValueError: a photo is in a shard, which FiftyOne cannot open.
        OSError: the folder cannot be written.
    """
    by_photo: dict[Path, list[Suspect]] = {}
    for suspect in suspects:
        check_no_shard(suspect.photo, "FiftyOne cannot open")
        by_photo.setdefault(suspect.photo, []).append(suspect)
    samples = [_sample(photo, group, folder) for photo, group in by_photo.items()]
    info = {"description": "captions suspected by caption-curation"}
    write_json(folder / "samples.json", {"samples": samples})
    write_json(folder / "metadata.json", {"media_type": "image", "info": info})


def _sample(photo: Path, suspects: Sequence[Suspect], folder: Path) -> dict[str, Any]:
    known = [suspect.suspicion for suspect in suspects if suspect.suspicion is not None]
    return {
        "filepath": Path(os.path.relpath(photo.resolve(), folder.resolve())).as_posix(),
        "tags": list(dict.fromkeys(issue for suspect in suspects for issue in suspect.issues)),
        "metadata": None,
        "suspicion": max(known, default=None),
        "suspects": {"_cls": "Classifications", "classifications": [*map(_label, suspects)]},
    }


def _label(suspect: Suspect) -> dict[str, Any]:
    return {
        "_cls": "Classification",
        "tags": list(suspect.issues),
        "label": suspect.caption,
        "confidence": suspect.suspicion,
        "sample_id": suspect.sample_id,
        "reason": suspect.reason,
        "proposal": suspect.proposal,
    }
