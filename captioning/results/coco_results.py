"""Read and write captions in the COCO results format, and write references."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioning.runtime.files import write_json
from captioning.types import Prediction, Sample

# Keys by which entries name their photo, as COCO's exports and ``captioning caption`` write them.
NAME_KEYS = ("file_name", "file", "image", "photo")
# By which they name its id and caption: COCO's first; LLaVA's answers to questions about photos.
ID_KEYS = ("image_id", "question_id")
CAPTION_KEYS = ("caption", "text", "prediction", "answer")


@dataclass(frozen=True, kw_only=True)
class ResultEntry:
    """Captions of an image in a results file.

    Attributes:
        image_id: image id as text; None if the entry only names a photo.
        is_number: whether the id is a number in the file.
        names: names of the photo, the most reliable first.
        captions: the best first.
        place: position in the file, for messages.
    """

    image_id: str | None
    is_number: bool
    names: tuple[str, ...]
    captions: list[str]
    place: str


def read_results(path: str | Path) -> dict[str, list[str]]:
    """Read captions by image id from a results file, in the file's order.

    One caption an image in COCO's format, ``[{"image_id": 9, "caption": "..."}, ...]``, or several,
    the best first, ``[{"image_id": 9, "captions": ["...", "..."]}, ...]``. Ids may be numbers or
    text and become text. JSON Lines have one entry per line; LLaVA's ``question_id`` and ``text``
    are also accepted as keys. Further keys are ignored. An empty caption is kept: it is scored as
    the empty string.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not JSON or a list of such entries, is empty, or repeats an id.
    """
    captions_by_image: dict[str, list[str]] = {}
    for entry in read_entries(path):
        if entry.image_id is None:
            raise ValueError(f"{entry.place}: image_id must be a number or text: got None")
        captions_by_image[entry.image_id] = entry.captions
    return captions_by_image


def read_entries(path: str | Path) -> list[ResultEntry]:
    """Read the entries of a results file; each has an image id or its photo's name.

    See `read_results`; The JSON output of ``captioning caption`` can also be read.

    Raises:
        FileNotFoundError, ValueError: see `read_results`.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; give a COCO results file")
    values = _values(path)
    if not isinstance(values, list) or not values:
        raise ValueError(f"{path}: must be a list of at least one image_id and caption")
    entries = [_entry(value, f"{path}: entry {number}") for number, value in enumerate(values)]
    seen: set[str] = set()
    for entry in entries:
        image_id = entry.image_id
        if image_id is not None and image_id in seen:
            raise ValueError(
                f"{entry.place}: image_id {image_id!r} occurs twice; put several captions of an "
                'image into one entry: "captions": [...]'
            )
        if image_id is not None:
            seen.add(image_id)
    return entries


def _values(path: Path) -> Any:
    """Parsed content of JSON, or the list of the parsed lines of JSON Lines."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        try:
            value = json.loads(text)
            return [value] if isinstance(value, dict) and path.suffix == ".jsonl" else value
        except json.JSONDecodeError as error:
            lines = [line for line in text.split("\n") if line.strip()]
            if error.msg != "Extra data" or len(lines) < 2:
                raise
            return [json.loads(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not valid JSON in UTF-8: {error}") from error


def _entry(entry: object, place: str) -> ResultEntry:
    if not isinstance(entry, dict):
        raise ValueError(f"{place}: must be an object with image_id and caption: got {entry!r}")
    key = next((key for key in ID_KEYS if entry.get(key) is not None), "image_id")
    image_id = entry.get(key)
    names = tuple(entry[key] for key in NAME_KEYS if isinstance(entry.get(key), str))
    is_id = isinstance(image_id, int | str) and not isinstance(image_id, bool)
    if not is_id and not (image_id is None and names):
        raise ValueError(f"{place}: image_id must be a number or text: got {image_id!r}")
    key = next((key for key in CAPTION_KEYS if key in entry), "caption")
    captions = entry["captions"] if "captions" in entry else [entry.get(key)]
    if not isinstance(captions, list) or not captions:
        raise ValueError(f"{place}: captions must be a list of one or more: got {captions!r}")
    texts = [_text(caption) for caption in captions]
    for caption in texts:
        if not isinstance(caption, str):
            raise ValueError(f"{place}: caption must be text: got {caption!r}")
    return ResultEntry(
        image_id=str(image_id) if is_id else None,
        is_number=isinstance(image_id, int),
        names=names,
        captions=[str(caption) for caption in texts],
        place=place,
    )


def _text(caption: Any) -> Any:
    """Text of a caption, which ``captioning caption`` stores in an object beside its score."""
    return caption.get("caption") if isinstance(caption, dict) else caption


def write_results(path: Path, predictions: Iterable[Prediction]) -> None:
    """Write captions in the COCO results format; integer-like ids become numbers.

    For constrained search, ``constraints_met`` states whether the caption meets its constraints.
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
    """Write several captions per image, best first, with scores, for `read_results`."""
    entries = [
        {
            "image_id": _number_or_text(group[0].image_id),
            "captions": [prediction.caption for prediction in group],
            "scores": [prediction.score for prediction in group],
        }
        for group in candidates
    ]
    write_json(path, entries)


def write_captions(
    folder: Path, groups: Sequence[Sequence[Prediction]], samples: Sequence[Sample]
) -> None:
    """Write ``predictions.json``, ``references.json``, and ``candidates.json`` of several captions.

    Candidates of an earlier search are removed, as they do not belong to these predictions.

    Args:
        folder: folder to write to.
        groups: captions of each image, the best first.
        samples: samples with the references of these images, at least.
    """
    write_references(folder / "references.json", samples, {group[0].image_id for group in groups})
    write_results(folder / "predictions.json", [group[0] for group in groups])
    if any(len(group) > 1 for group in groups):
        write_candidates(folder / "candidates.json", groups)
    else:
        (folder / "candidates.json").unlink(missing_ok=True)


def _number_or_text(image_id: str) -> int | str:
    # only where reading gives the same id back: "007" and non-ASCII digits stay text
    is_number = image_id.isascii() and image_id.isdigit() and str(int(image_id)) == image_id
    return int(image_id) if is_number else image_id


def write_references(path: Path, samples: Sequence[Sample], image_ids: Collection[str]) -> None:
    """Write references as COCO's captions JSON, with the ids of `write_results`.

    ``COCO(references).loadRes(predictions)`` of pycocotools then joins both. Ids of your own photos
    are text, as in the predictions.
    """
    wanted = frozenset(image_ids)
    chosen = [sample for sample in samples if sample.image_id in wanted]
    images = {
        sample.image_id: {"id": _number_or_text(sample.image_id), "file_name": _file_name(sample)}
        for sample in chosen
    }
    annotations = [
        {"id": number, "image_id": images[sample.image_id]["id"], "caption": sample.caption}
        for number, sample in enumerate(chosen, start=1)
    ]
    info = {"description": "references of the captions in predictions.json"}
    value = {"info": info, "licenses": [], "images": [*images.values()], "annotations": annotations}
    write_json(path, value, indent=None)


def _file_name(sample: Sample) -> str:
    """Path of the photo below its dataset's folder if the id is that path; else its file name."""
    return sample.image_id if is_path_of(sample) else sample.image_path.name


def is_path_of(sample: Sample) -> bool:
    """Whether the image id is the photo's path below its dataset's folder."""
    path = sample.image_path.as_posix()
    return path == sample.image_id or path.endswith(f"/{sample.image_id}")
