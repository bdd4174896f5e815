"""Suspects as a data set on disk that FiftyOne opens; needs no FiftyOne.

The layout is that of ``fiftyone.types.FiftyOneDataset``: ``metadata.json`` and ``samples.json``
with a serialised sample a photo. Without a version in the metadata FiftyOne takes the fields from
the samples, which does for every version of it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from captioning.runtime.files import write_json
from curation.review.suspects.suspects import Suspect, check_no_shard


def write_fiftyone(suspects: Sequence[Suspect], folder: Path) -> None:
    """Write ``metadata.json`` and ``samples.json``; photos stay where they are.

    Raises:
        ValueError: a photo lies in a shard, which FiftyOne cannot open.
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
