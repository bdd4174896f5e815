"""Rosters from what users have in Python: records, tables of Hugging Face, image folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from captioning.data.roster import Roster, build_roster
from captioning.types import Sample

IMAGE_KEYS = ("image", "image_path", "file_name")
CAPTION_KEYS = ("caption", "captions", "text")


def make_roster(samples: Any, *, name: str = "train") -> Roster:
    """The samples of a training set, one for each caption, in the order in which they are given.

    Args:
        samples: a `Roster`; records, which are mappings with an image (``image``, ``image_path`` or
            ``file_name``), a caption or a list of them (``caption``, ``captions`` or ``text``) and,
            optionally, ``image_id`` and ``sample_id``, or pairs of image and caption; a table of
            the package ``datasets`` with such columns; or the folder of an image folder with
            ``metadata.jsonl``. An image is a path, or anything else with an ``image_id``.
        name: of the roster, where it has none.

    Raises:
        ValueError: a record that is not as said, or an id that occurs twice; names the record.
        FileNotFoundError: no such folder.
    """
    if isinstance(samples, Roster):
        return samples
    if isinstance(samples, str | Path):
        from captioning.data.readers.imagefolder import read_imagefolder

        return read_imagefolder(name=name, folder=samples)
    if hasattr(samples, "column_names") and hasattr(samples, "with_format"):
        samples = _table_records(samples)
    if not isinstance(samples, Iterable) or isinstance(samples, bytes | Mapping):
        raise ValueError(
            "samples must be a Roster, a list of records, a table of datasets or a folder: got "
            f"{type(samples).__name__}"
        )
    counts: Counter[str] = Counter()
    return build_roster(
        name,
        [
            sample
            for number, record in enumerate(samples)
            for sample in _samples(record, f"samples[{number}]", number, counts)
        ],
    )


def _samples(record: Any, where: str, number: int, counts: Counter[str]) -> Iterator[Sample]:
    """The samples of a record, a caption each."""
    if isinstance(record, Sample):
        yield record
        return
    record = _as_mapping(record, where)
    image = record[_key(record, IMAGE_KEYS, where)]
    caption_key = _key(record, CAPTION_KEYS, where)
    captions = record[caption_key]
    texts = [captions] if isinstance(captions, str) else captions
    if not isinstance(texts, Sequence) or not texts or not all(isinstance(t, str) for t in texts):
        raise ValueError(f"{where}: {caption_key!r} must be a text or a list of texts")
    path = _image_path(image, number)
    image_id = str(record.get("image_id", path.as_posix()))
    for text in texts:
        if not text.strip():
            raise ValueError(f"{where}: {caption_key!r} is empty; write it or leave the record out")
        sample_id = record.get("sample_id", f"{image_id}#{counts[image_id]}")
        counts[image_id] += 1
        yield Sample(
            row=0, sample_id=str(sample_id), image_id=image_id, image_path=path, caption=text
        )


def _as_mapping(record: Any, where: str) -> Mapping[str, Any]:
    if isinstance(record, Mapping):
        return record
    if isinstance(record, Sequence) and not isinstance(record, str) and len(record) == 2:
        return dict(zip(("image", "caption"), record, strict=True))
    raise ValueError(
        f"{where}: must be a mapping with image and caption, or a pair of them: got "
        f"{type(record).__name__}"
    )


def _key(record: Mapping[str, Any], keys: Sequence[str], where: str) -> str:
    present = [key for key in keys if record.get(key) is not None]
    if len(present) != 1:
        raise ValueError(
            f"{where}: needs exactly one of the keys {list(keys)}: it has "
            f"{present or sorted(map(str, record))}"
        )
    return present[0]


def _image_path(image: Any, number: int) -> Path:
    """Where an image lies; one in memory gets a name by its place."""
    if isinstance(image, str | Path):
        return Path(image)
    return Path(getattr(image, "filename", None) or f"image_{number}")


def _table_records(table: Any) -> Iterator[dict[str, Any]]:
    """Records of a table of ``datasets``, without decoding a single image."""
    where = "table"
    columns = dict.fromkeys(table.column_names)
    names = [
        next((key for key in keys if key in columns), None) for keys in (IMAGE_KEYS, CAPTION_KEYS)
    ]
    image_key, caption_key = names
    if image_key is None or caption_key is None:
        raise ValueError(
            f"{where}: needs columns for image {list(IMAGE_KEYS)} and caption {list(CAPTION_KEYS)}:"
            f" it has {list(columns)}; rename with table.rename_column"
        )
    kept = [image_key, caption_key, *(k for k in ("image_id", "sample_id") if k in columns)]
    arrow = table.select_columns(kept).with_format("arrow")[:]
    values = {key: arrow[key] for key in kept}
    if hasattr(arrow[image_key].type, "fields"):  # images with their bytes: the path is enough
        values[image_key] = arrow[image_key].combine_chunks().field("path")
    lists = {key: column.to_pylist() for key, column in values.items()}
    for number in range(len(table)):
        record = {key: lists[key][number] for key in kept}
        yield record | {image_key: record[image_key] or f"image_{number}"}
