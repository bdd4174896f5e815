"""Export the curated dataset of a run, to publish or train on elsewhere.

::

    captioning curate export RUN FOLDER --format FORMAT [--photos copy]
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from captioning.data.readers.split_words import Split
from captioning.data.roster import Roster
from captioning.runtime.extras import import_extra
from captioning.runtime.files import is_taken, read_json, write_json, write_text
from captioning.vision.photos import load_rgb
from curation.export.curated_set import (
    HUB_NAMES,
    Picture,
    caption_fields,
    captioned,
    of_splits,
    photo_bytes,
    pictures,
    place_photos,
    safe_names,
    set_digest,
    told_fields,
    write_coco,
    write_jsonl,
    write_metadata,
)
from curation.export.set_card import card
from curation.export.tool_files import (
    Style,
    write_csv,
    write_karpathy,
    write_messages,
    write_messages_index,
    write_text_files,
)
from curation.journal.journal import FILE_NAME, Header, encode, write_journal
from curation.record import RunRecord

PICTURES_IN_A_FILE = 1000
ROWS = 100  # rows in memory, and in a row group
BYTES_AT_ONCE = 1 << 25
_JPEG = b"\xff\xd8"  # first bytes of a JPEG file
_TO_JSON = json.JSONEncoder(ensure_ascii=False).encode
_ZEROS = bytes(tarfile.BLOCKSIZE)
_BLANK = tarfile.TarInfo("").tobuf(tarfile.GNU_FORMAT)  # a tar header without a name
# sum of its bytes except size and checksum, which counts as spaces
_BLANK_SUM = sum(_BLANK) - sum(_BLANK[124:135]) - sum(_BLANK[148:156]) + 8 * ord(" ")
_PURPOSE = "Parquet and Arrow files"
_TOLD = {"weights": "float64", "masked_words": "string", "buckets": "int64"}


def write_parquet(curated: Sequence[Picture], folder: Path, split: Split | None = None) -> None:
    """Write ``data/train-00000-of-00001.parquet`` and so on, as datasets on the Hugging Face hub.

    Without splits, files are named ``data/data-00000-of-00001.parquet`` and so on.

    Raises:
        FileNotFoundError: an image is missing; the message names it.
        ModuleNotFoundError: pyarrow is not installed.
    """
    parquet = import_extra("pyarrow.parquet", extra="arrow", purpose=_PURPOSE)
    (folder / "data").mkdir(exist_ok=True)
    name = HUB_NAMES[split] if split else "data"
    parts, told = list(_parts(curated)), told_fields(curated)
    schema = _schema(told)
    # no dictionary: photos are compressed already, and finding repeats takes longer than writing
    options = {"compression": {"image.bytes": "NONE"}, "use_dictionary": False}
    for number, part in enumerate(parts):
        path = folder / "data" / f"{name}-{number:05d}-of-{len(parts):05d}.parquet"
        with parquet.ParquetWriter(path, schema, write_statistics=False, **options) as file:
            for rows in _tables(part, told, schema):
                file.write_table(rows)


def write_datasets(curated: Sequence[Picture], folder: Path, split: Split | None = None) -> None:
    """Write the files of ``save_to_disk``, for ``datasets.load_from_disk(FOLDER)``.

    Raises:
        FileNotFoundError: an image is missing; the message names it.
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
    """Add a split to the file in which ``datasets`` lists the splits of a folder."""
    path = folder / "dataset_dict.json"
    splits = read_json(path, dict)["splits"] if path.is_file() else []
    write_json(path, {"splits": [*splits, name]})


def write_webdataset(curated: Sequence[Picture], folder: Path, split: Split | None = None) -> None:
    """Write ``000000.tar`` and so on, with ``KEY.jpg``, ``KEY.txt`` and ``KEY.json`` per photo.

    The key is the picture's name without suffix, dots being ``_``. Photos of other types become
    JPEG, as loaders of shards want one type.

    Raises:
        FileNotFoundError: an image is missing; the message names it.
        ValueError: an image cannot be converted to JPEG; the message names it.
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
    """Map image names to keys in shards; each key belongs to one image only."""
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
    """Return a photo as JPEG bytes; a JPEG file is returned unchanged."""
    data = photo_bytes(picture.path)
    if data.startswith(_JPEG):
        return data
    file = io.BytesIO()
    load_rgb(picture.path).save(file, "JPEG", quality=95, subsampling=0)
    return file.getvalue()


def _member(name: str, data: bytes) -> tuple[bytes, bytes, bytes]:
    """Return a tar member: header, file content, and zeros up to the next block."""
    return _header(name, len(data)), data, _ZEROS[: -len(data) % tarfile.BLOCKSIZE]


def _header(name: str, size: int) -> bytes:
    """Build a tar header from a template, five times faster than `tarfile`."""
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
    """Metadata of an image, with its name, which decoded photos no longer have."""
    names = {"file_name": picture.file_name, "image_id": picture.image_id}
    return {**names, **caption_fields(picture, told)}


def _features(told: Sequence[str]) -> dict[str, Any]:
    """Description of the columns for ``datasets``; equal in all files of a dataset."""
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
    """Yield tables of up to `ROWS` rows and about `BYTES_AT_ONCE` bytes, in order."""
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


PACKED: dict[str, tuple[Callable[[Sequence[Picture], Path, Split | None], None], str, str]] = {
    "parquet": (write_parquet, "data/", "pictures and captions as Parquet"),
    "datasets": (write_datasets, "data-*.arrow", "pictures and captions, for load_from_disk"),
    "webdataset": (write_webdataset, "*.tar", "pictures and captions in shards"),
}
FORMATS = (
    *("coco", "jsonl", "imagefolder", *PACKED),
    *("messages", "text_files", "csv", "karpathy", "journal"),
)
HOLD_PHOTOS = ("imagefolder", "text_files", *PACKED)
BESIDE = ("imagefolder", "text_files")  # photos lie beside their captions
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
ROWS_SAY = ("csv", "karpathy")  # for the split in a single file
# Arguments for `datasets.load_dataset`, which would otherwise read the journal as data: the files
# of each split, and other needs.
LOADED: dict[str, tuple[str, dict[str, str]]] = {
    "coco": ("captions{_split}.json", {"field": "annotations"}),
    "jsonl": ("captions{_split}.jsonl", {}),
    "parquet": ("data/{split_}*.parquet", {}),
    "webdataset": ("{split_}*.tar", {}),
    "messages": ("messages{_split}.jsonl", {}),
    "text_files": ("{split/}**/*.txt", {}),
    "csv": ("captions.csv", {}),
    "karpathy": ("dataset_captions.json", {"field": "images"}),
}
WRITTEN = {
    "coco": "the captions, as COCO has them",
    "jsonl": "the captions, one picture a line",
    "messages": "a question and its answer for each caption",
    "csv": "the captions, one a row",
    "karpathy": "the captions, as Karpathy's files have them",
}
PHOTOS = ("none", "copy", "link")
BESIDE_TOLD = "Only the training captions were curated; the others are as the run read them."
JOURNAL = "every edit, in order, with its reason"


def export(
    record: RunRecord,
    run: Path | None,
    folder: Path,
    *,
    format: str,
    photos: str,
    by_people: bool = False,
    splits: Mapping[Path, Split] | None = None,
    style: Style | None = None,
    about_splits: str = "",
    beside: Mapping[Split, Roster] | None = None,
) -> int:
    """Write the curated dataset, its journal and card; return the number of captions.

    Photos that still wait for a caption are left out, and the card says how many. The folder
    appears whole or not at all.

    Args:
        record: the run's record.
        run: its folder; None: the edits were decided without training.
        folder: new or empty.
        format: one of `FORMATS`.
        photos: one of `PHOTOS`: whether images are copied, linked or omitted.
        by_people: whether people made the final decisions, for the card.
        splits: splits of photos by path, which are written; None: all are of one.
        style: style of formats that have several forms; None: the plain ones.
        about_splits: the card's text on the splits, beside their sizes.
        beside: splits that were not curated, which are written beside the run's training captions.

    Raises:
        ValueError: the folder is not empty, the format needs photos or lacks the form, two photos
            would share a name, or no caption is left.
        FileNotFoundError: an image is missing.
        OSError: the folder cannot be written.
    """
    style = style or Style()
    style.check(format)
    _check_place(folder, format, photos)
    whole = [*captioned(record.view.samples())]
    whole += [s for roster in (beside or {}).values() for s in captioned(roster.samples)]
    curated = [] if format == "journal" else pictures(record.view, splits, beside)
    if beside and format in ROWS_SAY:
        curated = _told_apart(curated)
    num_written = sum(len(picture.samples) for picture in curated) if curated else len(whole)
    about = [about_splits, BESIDE_TOLD if beside else "", _left_out(len(whole) - num_written)]

    def fill(part: Path) -> None:
        files = _write_set(record, part, curated, format=format, photos=photos, style=style)
        roster = record.view.roster
        header = Header(roster=roster.name, fingerprint=roster.fingerprint, seed=record.seed)
        write_journal(part / FILE_NAME, header, map(encode, record.view.journal))
        versions_file = None if run is None else run / "versions.json"
        is_known = versions_file is not None and versions_file.is_file()
        text = card(
            record.view,
            header,
            files=files | {FILE_NAME: JOURNAL},
            versions=read_json(versions_file, dict) if versions_file and is_known else None,
            truth=record.truth,
            decider="people" if by_people else "checks" if run is None else "training",
            loaded=_loaded(format, curated, style),
            splits=_sizes_of_splits(curated, about),
        )
        write_text(part / "README.md", text)

    _write_folder(folder, fill)
    return num_written


def _check_place(folder: Path, format: str, photos: str) -> None:
    """Raise ValueError if the folder or the options do not allow the export."""
    if format in BESIDE and photos == "none":
        name = "an image folder" if format == "imagefolder" else "a folder of text files"
        raise ValueError(f"{name} must contain photos: choose --photos copy or link")
    if format in PACKED and photos == "link":
        raise ValueError(f"{format} must contain photos, not links: choose --photos copy")
    if format == "journal" and photos != "none":
        raise ValueError("the journal has no photos to export: choose --photos none")
    if is_taken(folder):
        raise ValueError(f"{folder} exists already and is not empty; choose a new folder")


def _left_out(number: int) -> str:
    if not number:
        return ""
    return (
        f"Captions of photos that no split of the original has: {number:,}; they are not part of "
        "these files."
    )


def _told_apart(curated: Sequence[Picture]) -> Sequence[Picture]:
    """Merge images of several splits for one file; duplicate ids are prefixed with the split.

    Raises:
        ValueError: a photo is in two splits.
    """
    first: dict[Path, Split | None] = {}
    for picture in curated:
        if first.setdefault(picture.path, picture.split) != picture.split:
            raise ValueError(
                f"{picture.path}: is in {first[picture.path]} and in {picture.split}, and this "
                "format has one split a photo; choose another --format, or --part train"
            )
    image_ids = Counter(picture.image_id for picture in curated)
    sample_ids = Counter(s.sample_id for picture in curated for s in picture.samples)
    if all(number == 1 for number in (*image_ids.values(), *sample_ids.values())):
        return curated
    return [
        replace(
            picture,
            image_id=f"{picture.split}/{picture.image_id}",
            samples=tuple(
                replace(s, sample_id=f"{picture.split}/{s.sample_id}") for s in picture.samples
            ),
        )
        for picture in curated
    ]


def _sizes_of_splits(curated: Sequence[Picture], told: Sequence[str]) -> str:
    """Text of the card about the sizes of the splits; empty without splits."""
    sizes = [
        f"{split} {len(group):,} photos, {sum(len(p.samples) for p in group):,} captions"
        for split, group in of_splits(curated)
        if split is not None
    ]
    return " ".join(filter(None, (*told, f"{'; '.join(sizes)}."))) if sizes else ""


def _loaded(format: str, curated: Sequence[Picture], style: Style) -> dict[str, Any] | None:
    """Data files for ``datasets.load_dataset`` by split; None if it finds the files by itself.

    ``datasets`` caches a folder by its name and these lines only, so the lines must distinguish
    different contents.
    """
    if format not in LOADED:
        return None
    files, told = LOADED[format]
    if format == "messages":
        files = style.pattern
    splits: list[Split | None] = [split for split, _ in of_splits(curated)]
    named = [{"split": HUB_NAMES[s], "path": _named(files, s)} for s in splits if s is not None]
    if named and format in ROWS_SAY:  # with a name that is not mistaken for a split
        named = [{"split": "whole", "path": files}]
    content = f"content {set_digest(curated, photos=format in PACKED)}"
    return {"description": content, "data_files": named or _named(files, None), **told}


def _named(pattern: str, split: Split | None) -> str:
    """File name of a split, from a pattern with placeholders."""
    name = "" if split is None else HUB_NAMES[split]
    marks = {"_split": name and f"_{name}", "split_": name and f"{name}-"}
    return pattern.format(**marks, **{"split/": name and f"{name}/"})


def _write_set(
    record: RunRecord,
    part: Path,
    curated: Sequence[Picture],
    *,
    format: str,
    photos: str,
    style: Style,
) -> dict[str, str]:
    """Write the captions and images, and return a description of each file."""
    if format == "journal":
        return {}
    if format in PACKED:
        write, name, what = PACKED[format]
        for split, chosen in of_splits(curated):
            write(chosen, part, split)
        return {name: what}
    copy = photos == "copy"
    if format == "text_files":
        return write_text_files(curated, part, style=style, copy=copy)
    if format == "imagefolder":
        return _write_imagefolders(curated, part, copy=copy)
    if photos != "none":
        place_photos(curated, part / "images", copy=copy)
    names = _write_captions(record, part, curated, format=format, photos=photos, style=style)
    files = {} if photos == "none" else {"images/": "the pictures"}
    return files | dict.fromkeys(names, WRITTEN[format])


def _write_captions(
    record: RunRecord,
    part: Path,
    curated: Sequence[Picture],
    *,
    format: str,
    photos: str,
    style: Style,
) -> list[str]:
    """Write the caption files, and return their names."""
    parts: Sequence[tuple[Split | None, Sequence[Picture]]] = of_splits(curated)
    parts = [(None, curated)] if format in ROWS_SAY else parts
    pattern = style.pattern if format == "messages" else LOADED[format][0]
    names: dict[Split | None, str] = {split: _named(pattern, split) for split, _ in parts}
    for split, chosen in parts:
        path = part / names[split]
        if format == "coco":
            write_coco(chosen, path, name=record.view.roster.name)
        elif format == "jsonl":
            write_jsonl(chosen, path)
        elif format == "messages":
            write_messages(chosen, path, style=style, photos=photos)
        elif format == "csv":
            write_csv(chosen, path)
        else:
            write_karpathy(chosen, path, name=record.view.roster.name)
    if style.form == "sharegpt":
        write_messages_index(part / "dataset_info.json", names)
    return list(names.values())


def _write_imagefolders(curated: Sequence[Picture], part: Path, *, copy: bool) -> dict[str, str]:
    files = {}
    for split, chosen in of_splits(curated):
        name = f"{HUB_NAMES[split]}/metadata.jsonl" if split else "metadata.jsonl"
        _write_imagefolder(chosen, (part / name).parent, copy=copy)
        files[name] = "the captions, one picture a line; the pictures lie beside it"
    return files


def _write_imagefolder(curated: Sequence[Picture], folder: Path, *, copy: bool) -> None:
    names = safe_names(curated)
    placed = [replace(picture, file_name=names[picture.file_name]) for picture in curated]
    place_photos(placed, folder, copy=copy, is_needed=True)
    write_metadata(curated, folder / "metadata.jsonl", names)


def _write_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Fill a hidden temporary folder, then move it into place.

    Raises:
        ValueError: the folder exists already and is not empty.
        OSError: it cannot be written, or the disk is full, names the folder; or a photo cannot be
            read, names the photo.
    """
    real, part = folder.resolve() if folder.is_symlink() else folder, None
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{real.name}-", dir=real.parent))
        fill(part)
        part.chmod(0o755)
        os.replace(part, real)
    except BaseException as error:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)
        if not isinstance(error, OSError) or error.errno is None:
            raise
        if part is not None and is_taken(real):
            raise ValueError(
                f"{folder} exists already and is not empty; choose a new folder"
            ) from error
        raise _named_error(error, folder, part) from error


def _named_error(error: OSError, folder: Path, part: Path | None) -> OSError:
    """Return the error with a remedy and with the folder's final name."""
    name = None if error.filename is None else Path(os.fsdecode(error.filename))
    about_folder = part is None or name is None or name.is_relative_to(part)
    number = error.errno or 0
    if about_folder or number in NO_ROOM:
        remedy, name = "free space or choose another place", folder
    else:
        remedy = "mend it, or take its captions out of the set"
    return type(error)(number, f"{os.strerror(number)}; {remedy}", str(name))
