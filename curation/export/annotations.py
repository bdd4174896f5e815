"""Annotations read without their photos, whatever format they have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from captioning.data.readers.coco import read_coco
from captioning.data.readers.flickr8k import read_flickr8k
from captioning.data.readers.jsonl import read_jsonl
from captioning.data.readers.karpathy import read_karpathy
from captioning.data.roster import Roster, build_roster
from captioning.types import Sample

ROSTER_FIELDS = ("sample_id", "image_id", "image_path", "caption")
HEAD_BYTES = 1 << 16  # read from a file's start to recognise its format


def read_annotations(
    paths: Sequence[str | Path], *, split: str | None = None, images: str | Path | None = None
) -> Roster:
    """The captions of a split, as a run reads them.

    Args:
        paths: COCO captions JSON (several are read as one), a Karpathy ``dataset_*.json``,
            Flickr8k's token file, or JSON Lines: of captions by image, or of samples with
            `ROSTER_FIELDS`.
        split: of a Karpathy file: ``train``, ``val`` or ``test``.
        images: list of the split's images (Flickr8k) or image ids (COCO), one a line.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not such a file, or a split where there are none; says the remedy.
    """
    first = Path(paths[0])
    text = str(first)
    if not text.startswith("pycocoevalcap:") and not first.is_file():
        raise FileNotFoundError(f"{first}: no such annotations")
    kind = _kind(first)
    if kind != "COCO captions" and len(paths) > 1:
        raise ValueError(f"{first}: of {kind}, one file is read at a time")
    if (kind == "Karpathy's JSON") != (split is not None):
        remedy = (
            "say which with --split" if split is None else "it has no splits: leave --split out"
        )
        raise ValueError(f"{first}: read as {kind}; {remedy}")
    if images is not None and kind not in ("COCO captions", "a token file"):
        raise ValueError(f"{first}: read as {kind}, which takes no --images")
    if kind == "Karpathy's JSON":
        options: dict[str, Any] = {"image_folder": None, "split": split}
        return read_karpathy(name=text, annotations=first, **options)
    if kind == "COCO captions":
        return read_coco(
            name=text,
            annotations=list(paths),
            image_folder=None,
            image_ids=images,
            missing_captions="drop",
        )
    if kind == "a token file":
        return read_flickr8k(name=text, token_file=first, image_folder=None, split_file=images)
    if kind == "samples as JSON Lines":
        return read_samples(first)
    return read_jsonl(name=text, annotations=first, image_folder=None)


def _kind(path: Path) -> str:
    if str(path).startswith("pycocoevalcap:"):
        return "COCO captions"
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if path.suffix == ".jsonl":
        line = head.split(b"\n")[0]
        return "samples as JSON Lines" if b'"sample_id"' in line else "JSON Lines"
    if path.suffix == ".json":
        return "Karpathy's JSON" if b'"sentences"' in head else "COCO captions"
    return "a token file"


def read_samples(path: str | Path) -> Roster:
    """A roster from JSON lines, one sample a line.

    Raises:
        ValueError: a line that is not an object with the four text fields, or a repeated id.
    """
    samples = []
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error}); save it as UTF-8") from error
    for number, line in enumerate(lines, start=1):
        if line:
            samples.append(_sample(line, f"{path} line {number}"))
    return build_roster(str(path), samples)


def _sample(line: str, where: str) -> Sample:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON ({error})") from error
    if not isinstance(record, dict) or not all(
        isinstance(record.get(name), str) for name in ROSTER_FIELDS
    ):
        raise ValueError(f"{where}: must be an object with the texts {', '.join(ROSTER_FIELDS)}")
    return Sample(
        row=0,
        sample_id=record["sample_id"],
        image_id=record["image_id"],
        image_path=Path(record["image_path"]),
        caption=record["caption"],
    )
