"""Where a study's pictures come from: a folder with a manifest, or a run with replaced images."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from captioning.data.json_files import Record, is_number, load_json_lines
from captioning.data.line_files import read_text
from captioning.data.photo_folder import checked_file_name
from captioning.data.readers.jsonl import captions_of
from curation.finished_run import read_run
from curation.study.items import Item, checked_picture

NAMES = ("manifest.jsonl", "manifest.csv")


def read_items(source: str | Path, within: Sequence[str | Path] = ()) -> list[Item]:
    """The pictures of a folder with ``manifest.jsonl`` or ``manifest.csv``, or of a run folder.

    A line of the manifest has ``image`` (relative to the folder), ``caption`` or ``captions``,
    ``loss`` and, if known, ``clip_score``; lines of the same image add captions. Of a run, the
    pictures that replaced others and are still in use are taken, each with its caption and with the
    loss of the first epoch that trained on it.

    Args:
        source: the folder.
        within: further folders in which pictures may lie.

    Raises:
        FileNotFoundError: no such folder, manifest or picture.
        ValueError: a line in another form, a picture outside the folders.
    """
    folder = Path(source)
    manifests = [folder / name for name in NAMES if (folder / name).is_file()]
    roots = [folder, *map(Path, within)]
    if manifests:
        return [_item(folder, lines, roots) for lines in _by_image(_lines(manifests[0])).values()]
    if (folder / "config.yaml").is_file():
        return _run_items(folder, roots)
    raise FileNotFoundError(
        f"{folder}: neither a manifest ({' or '.join(NAMES)}) nor a run; docs/study.md says what "
        "the manifest holds"
    )


def _lines(path: Path) -> Iterator[Record]:
    if path.suffix == ".jsonl":
        yield from load_json_lines(path)
        return
    for row in _rows(path):
        filled: dict[str, Any] = {key: text for key, text in row.items() if key and text}
        for key in ("loss", "clip_score"):
            if key in filled:
                filled[key] = _number(filled[key])
        yield Record(filled, f"{path}: row of {filled.get('image', '?')!r}")


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        return list(csv.DictReader(StringIO(read_text(path), newline=""), strict=True))
    except csv.Error as error:
        raise ValueError(f"{path}: no table of values with commas ({error})") from error


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _by_image(lines: Iterator[Record]) -> dict[str, list[Record]]:
    lines_by_image: dict[str, list[Record]] = {}
    for line in lines:
        lines_by_image.setdefault(checked_file_name(line.text("image"), line.where), []).append(
            line
        )
    return lines_by_image


def _item(folder: Path, lines: list[Record], roots: Sequence[Path]) -> Item:
    first = lines[0]
    name = checked_file_name(first.text("image"), first.where)
    for line in lines[1:]:
        if line.value.get("loss", first.value.get("loss")) != first.value.get("loss"):
            raise ValueError(f"{line.where}: loss of {name!r} differs from that at {first.where}")
    for key in ("loss", "clip_score"):
        required = key == "loss" or key in first
        if required and not is_number(first.get(key)):
            raise first.invalid(key, "a finite number")
    score = first.value.get("clip_score")
    return Item(
        name=name,
        path=checked_picture(folder / name, roots),
        captions=tuple(dict.fromkeys(text for line in lines for text in captions_of(line))),
        loss=float(first.value["loss"]),
        clip_score=None if score is None else float(score),
    )


def _run_items(folder: Path, roots: Sequence[Path]) -> list[Item]:
    record = read_run(folder)
    epoch_of = {
        edit.sample_id: edit.epoch for edit in record.view.journal if edit.action == "replace_image"
    }
    items = []
    for sample in record.view.samples():
        if sample.sample_id not in epoch_of:
            continue
        later_epochs = [
            place for place, epoch in enumerate(record.epochs) if epoch > epoch_of[sample.sample_id]
        ]
        losses = record.history[later_epochs, sample.row]
        losses = losses[np.isfinite(losses)]
        if len(losses):
            path = checked_picture(sample.image_path, roots)
            captions = (sample.caption,)
            item = Item(name=sample.sample_id, path=path, captions=captions, loss=float(losses[0]))
            items.append(item)
    if not items:
        raise ValueError(
            f"{folder}: the run trained on no replaced image; use one with replace_image that went "
            "on for an epoch after it, or a folder with a manifest"
        )
    return items
