"""A curated set with its pictures in large files: Parquet, a folder of `datasets`, tar shards."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

from captioning.data.readers.split_words import Split
from captioning.runtime.extras import import_extra
from captioning.runtime.files import read_json, write_json
from captioning.vision.photos import load_rgb
from curation.export.curated_set import (
    HUB_NAMES,
    Picture,
    caption_fields,
    photo_bytes,
    told_fields,
)

PICTURES_IN_A_FILE = 1000
ROWS = 100  # that are in memory, and in a group of rows
BYTES_AT_ONCE = 1 << 25
_JPEG = b"\xff\xd8"  # its first bytes
_TO_JSON = json.JSONEncoder(ensure_ascii=False).encode
_ZEROS = bytes(tarfile.BLOCKSIZE)
_BLANK = tarfile.TarInfo("").tobuf(tarfile.GNU_FORMAT)  # a header without name
# of its bytes but for size and checksum, which counts as blanks
_BLANK_SUM = sum(_BLANK) - sum(_BLANK[124:135]) - sum(_BLANK[148:156]) + 8 * ord(" ")
_PURPOSE = "Parquet and Arrow files"
_TOLD = {"weights": "float64", "masked_words": "string", "buckets": "int64"}


def write_parquet(curated: Sequence[Picture], folder: Path, split: Split | None = None) -> None:
    """``data/train-00000-of-00001.parquet`` and so on, as the hub's data sets have it.

    Without splits they are ``data/data-00000-of-00001.parquet``: no name says one.

    Raises:
        FileNotFoundError: a picture is gone; names it.
        ModuleNotFoundError: pyarrow is not installed.
    """
    parquet = import_extra("pyarrow.parquet", extra="arrow", purpose=_PURPOSE)
    (folder / "data").mkdir(exist_ok=True)
    name = HUB_NAMES[split] if split else "data"
    parts, told = list(_parts(curated)), told_fields(curated)
    schema = _schema(told)
    # photos are compressed already; to look for repeated ones takes longer than to write them
    options = {"compression": {"image.bytes": "NONE"}, "use_dictionary": False}
    for number, part in enumerate(parts):
        path = folder / "data" / f"{name}-{number:05d}-of-{len(parts):05d}.parquet"
        with parquet.ParquetWriter(path, schema, write_statistics=False, **options) as file:
            for rows in _tables(part, told, schema):
                file.write_table(rows)


def write_datasets(curated: Sequence[Picture], folder: Path, split: Split | None = None) -> None:
    """What ``save_to_disk`` leaves; ``datasets.load_from_disk(FOLDER)`` reads it.

    Raises:
        FileNotFoundError: a picture is gone; names it.
        ModuleNotFoundError: pyarrow is not installed.
    """
    arrow = import_extra("pyarrow", extra="arrow", purpose=_PURPOSE)
    if split is not None:
        _add_split(folder, HUB_NAMES[split])
        folder = folder / HUB_NAMES[split]
        folder.mkdir()
    parts, names, digest = list(_parts(curated)), [], hashlib.sha256()
    told = told_fields(curated)
    schema = _schema(told)
    for number, part in enumerate(parts):
        name = f"data-{number:05d}-of-{len(parts):05d}.arrow"
        with (
            arrow.OSFile(str(folder / name), "wb") as file,
            arrow.ipc.new_stream(file, schema) as writer,
        ):
            for rows in _tables(part, told, schema):
                writer.write_table(rows)
        names.append({"filename": name})
        digest.update("".join(picture.file_name for picture in part).encode())
    state = {
        "_data_files": names,
        "_fingerprint": digest.hexdigest()[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": split and HUB_NAMES[split],
    }
    write_json(folder / "state.json", state)
    write_json(folder / "dataset_info.json", {"citation": "", "features": _features(told)})


def _add_split(folder: Path, name: str) -> None:
    """Name a split in the file by which ``datasets`` knows a folder of several."""
    path = folder / "dataset_dict.json"
    splits = read_json(path, dict)["splits"] if path.is_file() else []
    write_json(path, {"splits": [*splits, name]})


def write_webdataset(curated: Sequence[Picture], folder: Path, split: Split | None = None) -> None:
    """``000000.tar`` and so on: ``KEY.jpg``, its first caption as ``KEY.txt``, all in ``KEY.json``.

    The key is the picture's name without suffix, dots being ``_``. Photos of other types become
    JPEG, as loaders of shards want one type.

    Raises:
        FileNotFoundError: a picture is gone; names it.
        ValueError: a picture of another type cannot be opened; names it.
    """
    told, keys = told_fields(curated), _keys(curated)
    head = f"{HUB_NAMES[split]}-" if split else ""
    for number, part in enumerate(_parts(curated)):
        with (folder / f"{head}{number:06d}.tar").open("wb", buffering=1 << 20) as shard:
            for picture in part:
                key = keys[picture.file_name]
                shard.writelines(_member(f"{key}.jpg", _jpeg(picture)))
                shard.writelines(_member(f"{key}.txt", picture.samples[0].caption.encode()))
                shard.writelines(_member(f"{key}.json", _TO_JSON(_fields(picture, told)).encode()))
            shard.write(_ZEROS * 2)
            shard.write(bytes(-shard.tell() % tarfile.RECORDSIZE))


def _keys(curated: Sequence[Picture]) -> dict[str, str]:
    """Keys in shards by names of pictures; each is of one picture alone."""
    keys: dict[str, str] = {}
    taken: set[str] = set()
    for picture in curated:
        name = picture.file_name
        if name not in keys:
            stem = os.path.splitext(name)[0].replace(".", "_")
            choices = chain((stem, name.replace(".", "_")), (f"{stem}-{n}" for n in count(2)))
            keys[name] = next(choice for choice in choices if choice not in taken)
            taken.add(keys[name])
    return keys


def _jpeg(picture: Picture) -> bytes:
    """The bytes of a photo as JPEG: its own, if it is one."""
    data = photo_bytes(picture.path)
    if data.startswith(_JPEG):
        return data
    file = io.BytesIO()
    load_rgb(picture.path).save(file, "JPEG", quality=95, subsampling=0)
    return file.getvalue()


def _member(name: str, data: bytes) -> tuple[bytes, bytes, bytes]:
    """A file of a tar file, its header before it, and zeros to the next block."""
    return _header(name, len(data)), data, _ZEROS[: -len(data) % tarfile.BLOCKSIZE]


def _header(name: str, size: int) -> bytes:
    """What `tarfile` writes, in a fifth of the time: name, size and checksum are put in a blank."""
    raw = name.encode(errors="surrogateescape")
    if len(raw) > tarfile.LENGTH_NAME or size >= 8**11:
        member = tarfile.TarInfo(name)
        member.size = size
        return member.tobuf(tarfile.GNU_FORMAT)
    header = bytearray(_BLANK)
    header[: len(raw)] = raw
    header[124:135] = b"%011o" % size
    header[148:156] = b"%06o\0 " % (_BLANK_SUM + sum(raw) + sum(header[124:135]))
    return bytes(header)


def _parts(curated: Sequence[Picture]) -> Iterator[Sequence[Picture]]:
    for start in range(0, len(curated), PICTURES_IN_A_FILE):
        yield curated[start : start + PICTURES_IN_A_FILE]


def _fields(picture: Picture, told: Sequence[str]) -> dict[str, Any]:
    """What is said of a picture beside it: its name, too, which decoded photos have lost."""
    names = {"file_name": picture.file_name, "image_id": picture.image_id}
    return {**names, **caption_fields(picture, told)}


def _features(told: Sequence[str]) -> dict[str, Any]:
    """The columns as ``datasets`` describes them; the same in all files of a set."""
    strings = _listed("string")
    return {
        "image": {"_type": "Image"},
        "captions": strings,
        "file_name": {"dtype": "string", "_type": "Value"},
        "image_id": {"dtype": "string", "_type": "Value"},
        "sample_ids": strings,
        "origins": strings,
        **{name: _listed(_TOLD[name]) for name in told},
    }


def _listed(kind: str) -> dict[str, Any]:
    return {"feature": {"dtype": kind, "_type": "Value"}, "_type": "Sequence"}


def _schema(told: Sequence[str]) -> Any:
    arrow = import_extra("pyarrow", extra="arrow", purpose=_PURPOSE)
    texts, text = arrow.list_(arrow.string()), arrow.string()
    image = arrow.struct([("bytes", arrow.binary()), ("path", text)])
    kinds = {"image": image, "captions": texts, "file_name": text, "image_id": text}
    kinds |= {"sample_ids": texts, "origins": texts}
    kinds |= {name: arrow.list_(arrow.type_for_alias(_TOLD[name])) for name in told}
    return arrow.schema(
        list(kinds.items()),
        metadata={"huggingface": json.dumps({"info": {"features": _features(told)}})},
    )


def _tables(part: Sequence[Picture], told: Sequence[str], schema: Any) -> Iterator[Any]:
    """Tables of up to `ROWS` rows and about `BYTES_AT_ONCE`, in order."""
    arrow = import_extra("pyarrow", extra="arrow", purpose=_PURPOSE)
    image = schema.field("image").type
    begin, photos, size = 0, [], 0
    for end, picture in enumerate(part, start=1):
        photos.append(photo_bytes(picture.path))
        size += len(photos[-1])
        if len(photos) == ROWS or size > BYTES_AT_ONCE or end == len(part):
            rows = [_fields(one, told) for one in part[begin:end]]
            names = [row["file_name"] for row in rows]
            parts = [arrow.array(photos, arrow.binary()), arrow.array(names, arrow.string())]
            columns = {"image": arrow.StructArray.from_arrays(parts, fields=list(image))}
            columns |= {name: [row[name] for row in rows] for name in schema.names[1:]}
            yield arrow.table(columns, schema=schema)
            begin, photos, size = end, [], 0
