"""Find the columns of Arrow and Parquet files that hold photos and captions, and read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioning.config.setting_error import Setting, SettingError
from captioning.data.readers.caption_columns import (
    ADDRESSES,
    ID_COLUMNS,
    TURNS,
    file_columns,
    found_captions,
    has_addresses,
    usual_captions,
)
from captioning.data.readers.record_keys import ANSWERS, FILES, number_name
from captioning.data.readers.split_words import (
    COLUMN,
    SPLITS,
    Split,
    chosen_key,
    is_split,
    split_of,
)
from captioning.runtime.extras import import_extra
from captioning.vision.shards.arrow_rows import (
    arrow,
    arrow_errors,
    is_parquet,
    open_table,
    parquet,
    plain_values,
)

IMAGE_COLUMNS = ("image", "img", "photo", "jpg", "png", "webp")
PATH_COLUMNS = ("file_name", "filename", "image_path", "file", "path")  # where there is no image
SAID = ("image_id", "sample_ids")  # ids that a file may have
IMAGE_KEY = Setting("image_column")
_BLOCK = 16384  # rows that are made into Python's values at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The relevant columns of a file.

    Attributes:
        image: image of photos: bytes, a path, or a structure of both.
        captions: column of captions; a field of structures after a dot.
        image_id: image id of image ids, or None.
        split: column of words for the split, or None.
        said: those of `SAID` that the file has and that are read.
    """

    image: str
    captions: tuple[str, ...]
    image_id: str | None
    split: str | None = None
    said: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """Names of the columns, without repeats."""
        names = [self.image, *(name.partition(".")[0] for name in self.captions)]
        names += [name for name in (self.image_id, self.split, *self.said) if name is not None]
        return list(dict.fromkeys(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A block of rows of a file.

    Attributes:
        first: number of the first.
        has_bytes: whether the photo is in the file.
        paths: the photos' former paths by the file, or None.
        captions: a text or list for each column of captions.
        ids: image ids, or None for each.
        splits: each row's word for the split, or None.
        said: values of `SAID`, None where the file has no such column.
    """

    first: int
    has_bytes: list[bool]
    paths: list[str | None]
    captions: list[tuple[Any, ...]]
    ids: list[Any]
    splits: list[Any]
    said: list[tuple[Any, ...]]


def choose_columns(
    file: Path,
    image: str | None,
    captions: str | Sequence[str] | None,
    image_id: str | None,
    split: str | None = None,
    *,
    own_ids: bool = False,
) -> Columns:
    """Choose the given columns, or columns with the usual names of datasets.

    Args:
        file: an Arrow or Parquet file.
        image, captions, image_id, split: names; None: the usual ones, no ids, no splits.
        own_ids: read `SAID`, too.

    Raises:
        ValueError: no such column, or several could be meant; lists the columns.
    """
    with arrow_errors(str(file)):
        schema = _schema(file)
        types = {name: schema.field(place).type for place, name in enumerate(schema.names)}
    named = [captions] if isinstance(captions, str) else captions
    if named is None and not found_captions(schema.names, str(file)):
        answers = [key for key, asked in ANSWERS.items() if any(name in types for name in asked)]
        named = [name for name in (*TURNS, *answers) if name in types][:1]
    chosen = Columns(
        image=image or _usual_image(file, types),
        captions=tuple(named or [schema.names[n] for n in usual_captions(schema.names, str(file))]),
        image_id=image_id,
        split=split,
        said=tuple(name for name in SAID if name in types and own_ids),
    )
    for name in chosen.names():
        if name not in types:
            raise SettingError(file, f"no column {name!r}", f"it has {list(types)}")
        if isinstance(types[name], arrow().BaseExtensionType):
            problem = f"column {name!r} has a type of its own, which is not read"
            raise SettingError(file, problem, "store it as a plain type")
    return chosen


def splits_of_rows(files: Sequence[Path]) -> tuple[str, list[Split]]:
    """Find the column that gives the split of each row in all files, and read it.

    It is `COLUMN` in any case, or else the one of words of splits alone.

    Raises:
        ValueError: it is empty in some rows, or two other columns say different ones.
    """
    with arrow_errors(str(files[0].parent if files else "")):
        schemas = [_schema(file) for file in files]
    shared = [
        name
        for name in (schemas[0].names if schemas else ())
        if all(name in s.names and _is_text(s.field(name).type) for s in schemas)
    ]
    named = [name for name in shared if name.strip().lower() == COLUMN]
    where = str(files[0].parent) if files else ""
    if not named:
        said = {name: words for name in shared if len({*(words := _words(files, name))}) > 1}
        column = chosen_key(said, where)
        return (column or "", _present(said[column]) if column else [])
    values = {
        value
        for file in files
        for batch in _batches_of(file, [named[0]])
        for value in batch[named[0]].unique().to_pylist()
    }
    words = {value for value in values if value}
    if not words or any(split_of(value) is None for value in words):
        return named[0], []
    if words != values:
        problem = f"some rows have no value in the column {named[0]!r}, others have {sorted(words)}"
        raise SettingError(where, problem, "fill them in, or give the column another name")
    return named[0], _present(words)


def _present(words: Iterable[str]) -> list[Split]:
    said = {split_of(word) for word in {*words}}
    return [split for split in SPLITS if split in said]


def _words(files: Sequence[Path], column: str) -> list[str]:
    """Return the values of a column in order; empty if a value is not a word for a split."""
    words: list[str] = []
    for file in files:
        for batch in _batches_of(file, [column]):
            if not all(map(is_split, batch[column].unique().to_pylist())):
                return []
            words += batch[column].to_pylist()
    return words


def _is_text(kind: Any) -> bool:
    return str(kind).startswith(("string", "large_string", "string_view", "dictionary<values=str"))


def _image_columns(types: Mapping[str, Any]) -> Sequence[str]:
    kinds = arrow().types
    has_photos = any(kinds.is_binary(one) or kinds.is_struct(one) for one in types.values())
    ids = () if has_photos or has_addresses(types) else ID_COLUMNS[:5]
    known = (IMAGE_COLUMNS, PATH_COLUMNS, (FILES,), file_columns(tuple(types)), ids)
    return next((names for names in known if any(n in types for n in names)), IMAGE_COLUMNS)


def _schema(file: Path) -> Any:
    if is_parquet(file):
        return parquet().read_schema(file)
    return open_table(str(file)).schema


def _usual_image(file: Path, types: Mapping[str, Any]) -> str:
    present = [name for name in _image_columns(types) if name in types]
    if not present and has_addresses(types):
        raise SettingError(file, *ADDRESSES)
    if len(present) != 1:
        problem = f"{present} could be meant" if present else "none has a usual name"
        raise SettingError(file, f"{problem} of the columns {list(types)}", "choose ", IMAGE_KEY)
    return present[0]


def read_rows(file: Path, columns: Columns) -> Iterator[Rows]:
    """Read the rows of a file without the bytes of its photos.

    Raises:
        ValueError: a damaged file, or columns of other kinds.
    """
    first = 0
    with arrow_errors(str(file)):
        for batch in _batches(file, columns):
            for name in batch.schema.names:
                batch[name].validate(full=True)
            yield _rows(batch, columns, first, file)
            first += len(batch)


def _batches(file: Path, columns: Columns) -> Iterator[Any]:
    names = columns.names()
    if is_parquet(file):
        with parquet().ParquetFile(file) as source:
            names[0] = _without_bytes(source, columns.image)
    yield from _batches_of(file, names)


def _batches_of(file: Path, names: Sequence[str]) -> Iterator[Any]:
    if not is_parquet(file):
        yield from open_table(str(file)).select(names).to_batches(_BLOCK)
        return
    with parquet().ParquetFile(file) as source:
        yield from source.iter_batches(_BLOCK, columns=names, use_threads=False)


def _without_bytes(source: Any, image: str) -> str:
    """Return the photo column, or its path field if the first photo has bytes.

    Bytes are not read where all photos seem to have them; statistics would tell for sure, but
    damaged ones end the process.
    """
    places = [source.schema.column(n).path for n in range(len(source.schema))]
    inside = [path for path in places if path.startswith(f"{image}.") and path.endswith(".path")]
    if len(inside) != 1:
        return image
    first = next(source.iter_batches(1, columns=[image], use_threads=False), None)
    has_bytes = first is not None and _photos(first[image], Path(), image)[0][0]
    return inside[0] if has_bytes else image


def _rows(batch: Any, columns: Columns, first: int, file: Path) -> Rows:
    has_bytes, paths = _photos(batch[columns.image], file, columns.image)
    captions = [_values(batch, name) for name in columns.captions]
    return Rows(
        first=first,
        has_bytes=has_bytes,
        paths=paths,
        captions=list(zip(*captions, strict=True)),
        ids=_values_or_none(batch, columns.image_id),
        splits=_values_or_none(batch, columns.split),
        said=list(
            zip(
                *(_values_or_none(batch, name if name in columns.said else None) for name in SAID),
                strict=True,
            )
        ),
    )


def _values_or_none(batch: Any, name: str | None) -> list[Any]:
    return [None] * len(batch) if name is None else batch[name].to_pylist()


def _photos(values: Any, file: Path, column: str) -> tuple[list[bool], list[str | None]]:
    """Return which photos are in the file, and their original paths."""
    types = arrow().types
    field = import_extra("pyarrow.compute", extra="arrow", purpose="Arrow files").struct_field
    nowhere: list[str | None] = [None] * len(values)
    is_list = types.is_list(values.type) or types.is_large_list(values.type)
    values = plain_values(values)
    if types.is_binary(values.type) or types.is_large_binary(values.type):
        return values.is_valid().to_pylist(), nowhere
    if types.is_string(values.type) or types.is_large_string(values.type):
        return [False] * len(values), values.to_pylist()
    if types.is_integer(values.type) or types.is_floating(values.type):  # ids, without zeros
        return [False] * len(values), [number_name(one) for one in values.to_pylist()]
    names = [part.name for part in values.type] if types.is_struct(values.type) else []
    if not {"bytes", "path"}.intersection(names):
        raise SettingError(
            file,
            f"column {column!r} holds {values.type}, not photos (bytes, paths, or "
            "structures of both)",
            "choose ",
            IMAGE_KEY,
        )
    paths = field(values, "path").to_pylist() if "path" in names else nowhere
    if "bytes" in names:
        return field(values, "bytes").is_valid().to_pylist(), paths
    # of Parquet with the bytes of every photo, these were not read
    is_there = values.is_valid().to_pylist() if is_list else [True] * len(values)
    return [one and is_parquet(file) for one in is_there], paths


def _values(batch: Any, name: str) -> list[Any]:
    column, *fields = name.split(".")
    values = batch[column].to_pylist()
    for field in fields:
        values = [_field(value, field) for value in values]
    return values


def _field(value: Any, name: str) -> Any:
    if isinstance(value, list):
        return [_field(item, name) for item in value]
    return value.get(name) if isinstance(value, dict) else None
