"""Write the annotation files of an augmented dataset from its records, one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from captioning.runtime.files import write_atomically


def records(path: Path, *, all_records: bool = False) -> Iterator[dict[str, Any]]:
    """Yield image records of ``provenance.jsonl``; ``all_records`` includes rejected proposals."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            if all_records or "refused" not in record:
                yield record


def write_annotations(folder: Path, provenance: Path) -> None:
    """Write ``captions.json`` and ``instances.json`` in COCO format, and ``metadata.jsonl``.

    Images are called by the proposals' names. Annotations are numbered in the records' order.

    Raises:
        OSError: a file cannot be written.
    """
    labels = {r["label"] for record in records(provenance) for r in record["regions"]}
    numbers = {label: number for number, label in enumerate(sorted(labels), start=1)}
    categories = [{"id": number, "name": label} for label, number in numbers.items()]
    captions = {"images": _images(provenance), "annotations": _captions(provenance)}
    boxes: dict[str, Iterable[dict[str, Any]]] = {
        "images": _images(provenance),
        "annotations": _boxes(provenance, numbers),
        "categories": categories,
    }
    _write_object(folder / "captions.json", captions)
    _write_object(folder / "instances.json", boxes)
    lines = (
        json.dumps(
            {"file_name": record["file_name"], "captions": record["captions"]}, ensure_ascii=False
        )
        for record in records(provenance)
    )
    path = folder / "images" / "metadata.jsonl"
    write_atomically(path, lambda part: _write_lines(part, (line + "\n" for line in lines)))


def _images(provenance: Path) -> Iterator[dict[str, Any]]:
    for record in records(provenance):
        width, height = record["size"]
        names = {"id": record["name"], "file_name": record["file_name"]}
        yield names | {"width": width, "height": height}


def _captions(provenance: Path) -> Iterator[dict[str, Any]]:
    number = 0
    for record in records(provenance):
        for caption in record["captions"]:
            number += 1
            yield {"id": number, "image_id": record["name"], "caption": caption}


def _boxes(provenance: Path, numbers: dict[str, int]) -> Iterator[dict[str, Any]]:
    number = 0
    for record in records(provenance):
        for region in record["regions"]:
            number += 1
            x1, y1, x2, y2 = region["box"]
            yield {
                "id": number,
                "image_id": record["name"],
                "category_id": numbers[region["label"]],
                "bbox": [x1, y1, x2 - x1, y2 - y1],
                "area": (x2 - x1) * (y2 - y1),
                "iscrowd": 0,
            }


def _write_object(path: Path, lists: Mapping[str, Iterable[dict[str, Any]]]) -> None:
    write_atomically(path, lambda part: _write_lines(part, _object(lists)))


def _object(lists: Mapping[str, Iterable[dict[str, Any]]]) -> Iterator[str]:
    """Yield a JSON object of lists, with one entry per line."""
    start = "{"
    for key, entries in lists.items():
        yield f"{start}{json.dumps(key)}: ["
        start, comma = "],\n", "\n"
        for entry in entries:
            yield comma + json.dumps(entry, ensure_ascii=False)
            comma = ",\n"
    yield "]}\n"


def _write_lines(path: Path, texts: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(texts)
