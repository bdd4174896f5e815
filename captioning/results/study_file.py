"""Files of records: the runs of a study, one a line, with their common values in the first line.

The first line holds ``{"study": NAME, "common": {...}}``; each further line holds one run's own
values. A record is ``common`` with the run's own values put in, key by key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from captioning.runtime.files import write_text, written_lines


def read_study(path: Path) -> list[dict[str, Any]]:
    """All records of a file, each complete.

    Raises:
        ValueError: a line that is no record; file and line are named.
    """
    common: dict[str, Any] = {}
    records = []
    try:
        lines = written_lines(path)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error}); get the file anew") from error
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            if number == 1:
                common = entry["common"]
            else:
                records.append(_merged(common, entry))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{path} line {number}: no record of a run ({error}); take the file from the "
                "repository again"
            ) from error
    return records


def write_study(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write records, sorted by the run's name, with what all of them share in the first line.

    Args:
        path: of the file, whose name is the study's.
        records: each with ``run``.
    """
    ordered = sorted(records, key=lambda record: record["run"])
    common = reduce(_shared, ordered) if len(ordered) > 1 else {}
    lines = [{"study": path.stem, "common": common}]
    lines += [_without_common(record, common) for record in ordered]
    texts = (json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in lines)
    write_text(path, "".join(f"{text}\n" for text in texts))


def pack_images(images: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Scores of single images as columns: ids once, then a list a metric (None: not scored)."""
    names = dict.fromkeys(name for scores in images.values() for name in scores)
    columns = {name: [scores.get(name) for scores in images.values()] for name in names}
    return {"ids": list(images), "scores": columns}


def unpack_images(packed: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The inverse of `pack_images`."""
    images: dict[str, dict[str, float]] = {image_id: {} for image_id in packed["ids"]}
    for name, values in packed["scores"].items():
        for image_id, value in zip(packed["ids"], values, strict=True):
            if value is not None:
                images[image_id][name] = value
    return images


def _shared(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Values that two records have in common, key by key."""
    shared: dict[str, Any] = {}
    for key in first.keys() & second.keys():
        first_value, second_value = first[key], second[key]
        if isinstance(first_value, Mapping) and isinstance(second_value, Mapping):
            shared[key] = _shared(first_value, second_value)
        elif first_value == second_value and type(first_value) is type(second_value):
            shared[key] = first_value
    return {key: shared[key] for key in first if key in shared}


def _without_common(record: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a record that are not in ``common``."""
    remaining: dict[str, Any] = {}
    for key, value in record.items():
        if key not in common:
            remaining[key] = value
        elif isinstance(value, Mapping):
            rest = _without_common(value, common[key])
            remaining |= {key: rest} if rest else {}
    return remaining


def _merged(common: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(common)
    for key, value in values.items():
        known = merged.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(known, value)
        else:
            merged[key] = value
    return merged
