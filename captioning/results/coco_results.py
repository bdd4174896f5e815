"""Files of captions and scores: the COCO results format in, JSON out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from captioning.files import write_json
from captioning.types import Prediction


def read_results(path: str | Path) -> dict[str, list[str]]:
    """Captions by image id from a results file, in the file's order.

    One caption an image in COCO's format, ``[{"image_id": 9, "caption": "..."}, ...]``, or several,
    the best first, ``[{"image_id": 9, "captions": ["...", "..."]}, ...]``. Ids may be numbers or
    text and become text. Further keys are ignored. An empty caption is kept: it is scored as the
    empty string.

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
    captions_by_image: dict[str, list[str]] = {}
    for number, entry in enumerate(entries):
        image_id, captions = _entry(entry, f"{path}: entry {number}")
        if image_id in captions_by_image:
            raise ValueError(
                f"{path}: entry {number}: image_id {image_id!r} occurs twice; several captions of "
                'an image go into one entry: "captions": [...]'
            )
        captions_by_image[image_id] = captions
    return captions_by_image


def _entry(entry: object, place: str) -> tuple[str, list[str]]:
    if not isinstance(entry, dict):
        raise ValueError(f"{place}: must be an object with image_id and caption: got {entry!r}")
    image_id = entry.get("image_id")
    if isinstance(image_id, bool) or not isinstance(image_id, int | str):
        raise ValueError(f"{place}: image_id must be a number or text: got {image_id!r}")
    captions = entry["captions"] if "captions" in entry else [entry.get("caption")]
    if not isinstance(captions, list) or not captions:
        raise ValueError(f"{place}: captions must be a list of one or more: got {captions!r}")
    for caption in captions:
        if not isinstance(caption, str):
            raise ValueError(f"{place}: caption must be text: got {caption!r}")
    return str(image_id), [str(caption) for caption in captions]


def write_results(path: Path, predictions: Iterable[Prediction]) -> None:
    """Write captions in the COCO results format; ids that are whole numbers become numbers.

    A caption that was searched with constraints says in ``constraints_met`` whether it meets them.
    """
    entries = [
        {
            "image_id": _number_or_text(prediction.image_id),
            "caption": prediction.caption,
            **_constraints(prediction.satisfied),
        }
        for prediction in predictions
    ]
    write_json(path, entries)


def _constraints(satisfied: bool | None) -> dict[str, bool]:
    return {} if satisfied is None else {"constraints_met": satisfied}


def write_candidates(path: Path, candidates: Iterable[Sequence[Prediction]]) -> None:
    """Write several captions an image with their scores, for `read_results`; the best first."""
    entries = [
        {
            "image_id": _number_or_text(group[0].image_id),
            "captions": [prediction.caption for prediction in group],
            "scores": [prediction.score for prediction in group],
        }
        for group in candidates
    ]
    write_json(path, entries)


def write_captions(folder: Path, groups: Sequence[Sequence[Prediction]]) -> None:
    """Write ``predictions.json``, and ``candidates.json`` of several captions an image.

    Candidates of an earlier search are removed, as they do not belong to these predictions.
    """
    write_results(folder / "predictions.json", [group[0] for group in groups])
    if any(len(group) > 1 for group in groups):
        write_candidates(folder / "candidates.json", groups)
    else:
        (folder / "candidates.json").unlink(missing_ok=True)


def _number_or_text(image_id: str) -> int | str:
    # only where reading gives the same id back: "007" and non-ASCII digits stay text
    is_number = image_id.isascii() and image_id.isdigit() and str(int(image_id)) == image_id
    return int(image_id) if is_number else image_id
