"""Make rosters (lists of samples) from records, Hugging Face tables or image folders."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from captioning.data.readers.many_samples import collector_paused
from captioning.data.roster import Roster
from captioning.types import Sample

IMAGE_KEYS = ("image", "image_path", "file_name")
CAPTION_KEYS = ("caption", "captions", "text")


def make_roster(samples: Any, *, name: str = "train") -> Roster:
    """Make a roster with one sample for each caption, in the given order.

    A photo whose bytes are in the table is known by its name there and a digest of its bytes, such
    as ``0-1a2b3c4d5e6f.png``: datasets uploaded from folders have lost the folders' names.

    Args:
        samples: a `Roster`; records, which are mappings with an image (``image``, ``image_path`` or
            ``file_name``), a caption or a list of them (``caption``, ``captions`` or ``text``) and,
            optionally, ``image_id`` and ``sample_id``, or pairs of image and caption; a table of
            the package ``datasets`` with such columns; or the folder of an image folder with
            ``metadata.jsonl``. An image is a path, or anything else with an ``image_id``.
        name: the roster's name, if it has none.

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
    paths: dict[str, Path] = {}
    rows: list[Sample] = []
    with collector_paused():  # many records are made at once, and none of them are circular
        for number, record in enumerate(samples):
            if isinstance(record, Sample):
                rows.append(replace(record, row=len(rows)))
            else:
                _append(rows, record, number, counts, paths)
    return Roster(name=name, samples=tuple(rows))


def _append(
    rows: list[Sample], record: Any, number: int, counts: Counter[str], paths: dict[str, Path]
) -> None:
    """Append one sample to ``rows`` for each caption of a record.

    Args:
        rows: is added to.
        record: record of an image.
        number: its place, from 0.
        counts: captions of each image so far.
        paths: by their names, as making one takes a while.
    """
    where = f"samples[{number}]"
    record = _as_mapping(record, where)
    image = record[_key(record, IMAGE_KEYS, where)]
    caption_key = _key(record, CAPTION_KEYS, where)
    captions = record[caption_key]
    texts = [captions] if isinstance(captions, str) else captions
    if not isinstance(texts, Sequence) or not texts or not all(isinstance(t, str) for t in texts):
        raise ValueError(f"{where}: {caption_key!r} must be a text or a list of texts")
    image_name = _image_name(image, number)
    if image_name not in paths:
        paths[image_name] = Path(image_name)
    path = paths[image_name]
    image_id = str(record["image_id"]) if "image_id" in record else path.as_posix()
    for text in texts:
        if not text.strip():
            raise ValueError(
                f"{where}: {caption_key!r} is empty; write a caption or remove the record"
            )
        sample_id = record.get("sample_id", f"{image_id}#{counts[image_id]}")
        counts[image_id] += 1
        rows.append(
            Sample(
                row=len(rows),
                sample_id=str(sample_id),
                image_id=image_id,
                image_path=path,
                caption=text,
            )
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


def _image_name(image: Any, number: int) -> str:
    """Return the path of an image; an image in memory gets a name from its position."""
    if isinstance(image, str | Path):
        return str(image)
    return getattr(image, "filename", None) or f"image_{number}"


def _table_records(table: Any) -> Iterator[dict[str, Any]]:
    """Yield the records of a ``datasets`` table without decoding images."""
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
    packed = [image_key] if hasattr(arrow[image_key].type, "fields") else []
    lists = {key: arrow[key].to_pylist() for key in kept if key not in packed}
    lists |= {key: _packed_names(arrow[key]) for key in packed}
    for number in range(len(table)):
        record = {key: lists[key][number] for key in kept}
        yield record | {image_key: record[image_key] or f"image_{number}"}


def _packed_names(column: Any) -> list[str | None]:
    """Names for rows of a column with ``path`` and ``bytes``; None for rows without both."""
    names: list[str | None] = []
    for chunk in column.chunks:
        pairs = zip(chunk.field("path").to_pylist(), chunk.field("bytes"), strict=True)
        names += [_packed_name(path, content) for path, content in pairs]
    return names


def _packed_name(path: str | None, content: Any) -> str | None:
    """Return the path with a digest of the bytes, unless the digest adds nothing."""
    if not content.is_valid or PurePosixPath(path or "").is_absolute():
        return path
    digest = hashlib.blake2b(content.as_buffer(), digest_size=6).hexdigest()
    name = PurePosixPath(path or "image")
    return str(name.with_name(f"{name.stem}-{digest}{name.suffix}"))
