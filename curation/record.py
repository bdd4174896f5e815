"""A run's curation as plain data, for reports and exports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isinf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioning.data.roster import CurationView
from captioning.runtime.files import read_json
from captioning.types import Edit, Sample
from curation.loop.keep import KeepList
from curation.loop.planted_faults import Mend, fault_of, mend_of


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run's edits and measurements.

    Attributes:
        policy: its name.
        seed: the run's seed.
        view: the roster and all edits.
        records: counts and detection scores of each epoch, see `curation.loop.curator.Outcome`.
        epochs: numbers of the epochs in ``history``.
        history: ``(E, N)`` losses in nats per token, NaN where a sample was not seen.
        truth: kind of planted fault by ``sample_id``; empty where it is not known.
        keep: the keep-list that the run obeyed.
    """

    policy: str
    seed: int
    view: CurationView
    records: Sequence[Mapping[str, Any]] = ()
    epochs: Sequence[int] = ()
    history: NDArray[np.floating] = field(default_factory=lambda: np.empty((0, 0)))
    truth: Mapping[str, str] = field(default_factory=dict)
    keep: KeepList | None = None


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read each epoch's counts and detection scores from ``epochs.json``; empty if missing.

    Raises:
        ValueError: the file is damaged.
    """
    records = read_json(path, list) if path.is_file() else []
    if not all(map(_is_record, records)):
        raise ValueError(
            f"{path} is damaged: it does not hold records of epochs; resume or repeat the run to "
            "write the file again, or delete the file"
        )
    return records


def _is_record(value: object) -> bool:
    if not isinstance(value, dict) or "epoch" not in value:
        return False
    return not any(isinstance(number, float) and isinf(number) for number in value.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An edit, with the sample before the edit.

    Attributes:
        edit: the edit.
        before: the sample that it was done to.
        new_photo: the picture that it got, for replaced images.
        fault: kind of the planted fault that the sample bore then, or an empty text.
        mend: effect of the replacement of a word on it, see `curation.loop.planted_faults.Mend`.
    """

    edit: Edit
    before: Sample
    new_photo: Path | None = None
    fault: str = ""
    mend: Mend = ""


def changes(view: CurationView, truth: Mapping[str, str]) -> Iterator[Change]:
    """Yield the journal's edits in order, each with the sample before the edit.

    `curation.loop.planted_faults.faulty_kinds` defines faults.
    """
    current: dict[str, Sample] = {}
    held_ids: dict[str, str] = {}
    for edit in view.journal:
        name = edit.sample_id
        before = current.get(name) or view.roster.by_id[name]
        photo = view.picture(edit) if edit.action == "replace_image" else None
        known: Any = {"held_id": held_ids.get(name, name), "roster": view.roster, "truth": truth}
        fault, mend = fault_of(before, **known), ""
        if edit.action == "replace_caption":
            source = edit.origin.removeprefix("sibling:")
            held_ids[name] = source if source in view.roster.by_id else name
            current[name] = replace(before, caption=edit.value or "", origin=edit.origin)
            mend = mend_of(before, current[name], **known)
        elif photo is not None:
            current[name] = replace(before, image_path=photo)
        yield Change(edit=edit, before=before, new_photo=photo, fault=fault, mend=mend)
