"""Read the images of a study, and divide them into balanced sets.

They come from a folder with a manifest, or from a run with replaced images.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from captioning.data.json_files import Record, is_number, load_json_lines
from captioning.data.line_files import read_text
from captioning.data.photo_folder import checked_file_name
from captioning.data.readers.jsonl import captions_of
from captioning.runtime.files import check_inside
from curation.finished_run import read_run

NAMES = ("manifest.jsonl", "manifest.csv")
SET_SIZE = 20  # pictures of a set, half of high and half of low loss
NUM_SETS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An image that annotators judge, with its captions and loss.

    Attributes:
        name: its file relative to the folder, or the sample's id.
        path: the file.
        captions: that it should show.
        loss: of the captioner on it, in nats per token.
        clip_score: its CLIPScore, or None where unknown.
    """

    name: str
    path: Path
    captions: tuple[str, ...]
    loss: float
    clip_score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An image with its set; ``half``, ``"high"`` or ``"low"`` loss, is hidden from annotators."""

    item: Item
    set_number: int
    half: str


def checked_picture(path: Path, folders: Sequence[Path]) -> Path:
    """Resolve the path of an image, which must be in one of the folders.

    Raises:
        ValueError: the image is outside the folders, also by ``..`` or a symbolic link.
        FileNotFoundError: the image does not exist.
    """
    remedy = "so it is not shown; move the image there, or name its folder with --within"
    real = check_inside(path, folders, remedy=remedy)
    if not real.is_file():
        raise FileNotFoundError(
            f"{path} does not exist; check that the manifest belongs to this folder"
        )
    return real


def divide(
    items: Sequence[Item], *, num_sets: int = NUM_SETS, size: int = SET_SIZE, seed: int = 0
) -> list[Placed]:
    """Divide the images of highest and lowest loss into sets with equal halves.

    The worst and the best of all are taken, as in the paper, and each set gets its share of both
    at random. Fewer pictures than ``num_sets * size`` make fewer or smaller sets.

    Args:
        items: at least two.
        num_sets: at most.
        size: size of a set; even.
        seed: seed of the dealing and of the order within sets.

    Raises:
        ValueError: ``size`` is odd or too small, or a loss is not finite, or items are too few.
    """
    if size < 2 or size % 2 or num_sets < 1:
        raise ValueError(
            f"the size of a set must be even and at least 2: got {num_sets} sets of {size}"
        )
    broken = next((item for item in items if not math.isfinite(item.loss)), None)
    if broken is not None:
        raise ValueError(f"{broken.name}: loss must be finite: got {broken.loss}")
    if len(items) < 2:
        raise ValueError(f"a study needs at least 2 pictures with a loss: got {len(items)}")
    ordered = sorted(items, key=lambda item: (item.loss, item.name))
    num_sets = min(num_sets, max(1, len(items) // size))
    each = min(size // 2, len(items) // (2 * num_sets))
    rng = np.random.default_rng(seed)
    sets: list[list[Placed]] = [[] for _ in range(num_sets)]
    for half, chosen in (
        ("low", ordered[: each * num_sets]),
        ("high", ordered[-each * num_sets :]),
    ):
        for place, number in enumerate(rng.permutation(len(chosen)).tolist()):
            target = place % num_sets
            sets[target].append(Placed(item=chosen[number], set_number=target, half=half))
    return [
        members[number] for members in sets for number in rng.permutation(len(members)).tolist()
    ]


def fingerprint(placed: Sequence[Placed]) -> str:
    """Hash of a study's images, 16 hexadecimal digits; independent of file locations."""
    digest = hashlib.sha256()
    for entry in placed:
        record = asdict(entry.item) | {"path": "", "set": entry.set_number}
        digest.update(json.dumps(record, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()[:16]


def read_items(source: str | Path, within: Sequence[str | Path] = ()) -> list[Item]:
    """Read images from a folder with ``manifest.jsonl`` or ``manifest.csv``, or from a run folder.

    A line of the manifest has ``image`` (relative to the folder), ``caption`` or ``captions``,
    ``loss`` and, if known, ``clip_score``; lines of the same image add captions. Of a run, the
    pictures that replaced others and are still in use are taken, each with its caption and with the
    loss of the first epoch that trained on it.

    Args:
        source: the folder.
        within: further folders in which pictures may lie.

    Raises:
        FileNotFoundError: the folder, its manifest or an image does not exist.
        ValueError: a line is malformed, or an image is outside the folders.
    """
    folder = Path(source)
    manifests = [folder / name for name in NAMES if (folder / name).is_file()]
    roots = [folder, *map(Path, within)]
    if manifests:
        return [_item(folder, lines, roots) for lines in _by_image(_lines(manifests[0])).values()]
    if (folder / "config.yaml").is_file():
        return _run_items(folder, roots)
    raise FileNotFoundError(
        f"{folder} is not a run folder and holds no manifest ({' or '.join(NAMES)}); "
        "docs/cards/study.md describes the manifest"
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
        raise ValueError(f"{path} is not a comma-separated table ({error})") from error


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
            raise ValueError(
                f"{line.where}: the loss of {name!r} differs from the loss at {first.where}"
            )
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
            f"{folder}: the run trained on no replaced image; choose a run that trained for an "
            "epoch after replace_image, or a folder with a manifest"
        )
    return items
