"""Files of captions and scores: the COCO results format in, JSON out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from captioning.files import write_json
from captioning.types import Prediction


def read_results(path: str | Path) -> dict[str, str]:
    """Captions by image id from a COCO results file: ``[{"image_id": 9, "caption": "..."}, ...]``.

    Ids may be numbers or text and become text. Further keys are ignored. An empty caption is kept:
    it is scored as the empty string.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: not JSON, not a list of such entries, no entries, or an id that occurs twice.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; give a COCO results file")
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not valid JSON in UTF-8: {error}") from error
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{path}: must be a list of image_id and caption, with an entry or more")
    captions: dict[str, str] = {}
    for number, entry in enumerate(entries):
        image_id, caption = _entry(entry, f"{path}: entry {number}")
        if image_id in captions:
            raise ValueError(f"{path}: entry {number}: image_id {image_id!r} occurs twice")
        captions[image_id] = caption
    return captions


def _entry(entry: object, place: str) -> tuple[str, str]:
    if not isinstance(entry, dict):
        raise ValueError(f"{place}: must be an object with image_id and caption: got {entry!r}")
    image_id, caption = entry.get("image_id"), entry.get("caption")
    if isinstance(image_id, bool) or not isinstance(image_id, int | str):
        raise ValueError(f"{place}: image_id must be a number or text: got {image_id!r}")
    if not isinstance(caption, str):
        raise ValueError(f"{place}: caption must be text: got {caption!r}")
    return str(image_id), caption


def write_results(path: Path, predictions: Iterable[Prediction]) -> None:
    """Write captions in the COCO results format; ids that are whole numbers become numbers."""
    entries = [
        {"image_id": _number_or_text(prediction.image_id), "caption": prediction.caption}
        for prediction in predictions
    ]
    write_json(path, entries)


def _number_or_text(image_id: str) -> int | str:
    # only where reading gives the same id back: "007" and non-ASCII digits stay text
    is_number = image_id.isascii() and image_id.isdigit() and str(int(image_id)) == image_id
    return int(image_id) if is_number else image_id
