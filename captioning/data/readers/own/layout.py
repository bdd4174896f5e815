"""Which layout a folder of photos with captions has, and where its splits lie."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from captioning.data.json_streams import stream_records
from captioning.data.photo_folder import PHOTO_SUFFIXES
from captioning.data.readers import imagefolder, table, text_files

Split = Literal["train", "val", "test"]
Kind = Literal[
    "imagefolder", "token_file", "karpathy", "coco", "jsonl", "table", "arrow", "webdataset",
    "text_files",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)
SPLITS: tuple[Split, ...] = get_args(Split)
# Words of file and folder names, without digits: captions_train2017.json.
SPLIT_WORDS: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training", "trainimages"),
    "val": ("validation", "valid", "val", "dev", "devimages"),
    "test": ("test", "testing", "testimages"),
}
_HEAD = 1 << 16  # bytes from which a file is recognised
_DEPTH = 3  # folders below that are looked into
_NO_CAPTIONS = (
    "instances", "person_keypoints", "panoptic", "image_info", "stuff", "dataset_info",
    "dataset_dict", "state.json",
)  # fmt: skip
LAYOUTS = (
    "photos beside metadata.csv or metadata.jsonl, COCO's captions JSON, a table (CSV, TSV) or "
    "JSON Lines of files and captions, Parquet or Arrow files, tar shards, or a .txt beside each "
    "photo (docs/own_photos.md)"
)


@dataclass(frozen=True, slots=True)
class Source:
    """A file or folder that holds captions of one split, or of all.

    Attributes:
        path: file or folder.
        split: None: no name says which.
        images: list of the split's images, for a token file.
    """

    path: Path
    split: Split | None = None
    images: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a folder holds its captions.

    Attributes:
        kind: which reader it is for.
        root: the folder.
        sources: in order; of different splits, or a single one of all.
        description: for people, such as ``"an image folder (metadata.csv)"``.
    """

    kind: Kind
    root: Path
    sources: tuple[Source, ...]
    description: str

    @property
    def splits(self) -> tuple[Split, ...]:
        """Splits that the folder has, in order."""
        return tuple(split for split in SPLITS if any(s.split == split for s in self.sources))


def recognise(
    folder: str | Path, *, kind: Kind | None = None, annotations: str | None = None
) -> Layout:
    """The layout of a folder.

    Args:
        folder: with the photos.
        kind: of the layout; None: the first of `KINDS` that is there.
        annotations: name of the one file that counts, of several; None: all that are there.

    Raises:
        FileNotFoundError: no such folder, no such file, or nothing that is known.
        ValueError: an unknown kind, or several files without names of splits.
    """
    root = Path(folder)
    if not root.is_dir():
        hint = "; give its folder, and the file's name as annotations" if root.is_file() else ""
        raise FileNotFoundError(f"{root}: no such folder{hint}")
    if kind is not None and kind not in KINDS:
        raise ValueError(f"layout must be one of {KINDS}: got {kind!r}")
    if annotations is not None and not (root / annotations).is_file():
        raise FileNotFoundError(f"{root / annotations}: no such file; correct annotations=")
    for candidate in KINDS if kind is None else (kind,):
        sources = list(_FINDERS[candidate](root))
        if annotations is not None:
            sources = [Source(s.path) for s in sources if s.path == root / annotations]
        if sources:
            return _layout(candidate, root, sources)
    wanted = LAYOUTS if kind is None else f"the layout {kind!r}"
    raise FileNotFoundError(f"{root}: no captions are found in it; it needs {wanted}")


def _layout(kind: Kind, root: Path, sources: Sequence[Source]) -> Layout:
    without = [source for source in sources if source.split is None]
    if without and len(sources) > 1:
        names = [source.path.relative_to(root).as_posix() for source in sources]
        raise ValueError(
            f"{root}: {names} could all be meant, and their names do not say train, validation or "
            "test; choose annotations=NAME, or another layout="
        )
    names = [source.path.relative_to(root).as_posix() for source in sources]
    shown = ", ".join(dict.fromkeys(name for name in names if name != "."))
    description = _NAMES[kind] + (f" ({shown})" if shown and len(shown) < 120 else "")
    return Layout(kind=kind, root=root, sources=tuple(sources), description=description)


_NAMES: dict[Kind, str] = {
    "imagefolder": "an image folder with metadata",
    "token_file": "a token file as Flickr8k's",
    "karpathy": "Karpathy's JSON",
    "coco": "COCO captions",
    "jsonl": "JSON Lines",
    "table": "a table",
    "arrow": "Arrow or Parquet files",
    "webdataset": "tar shards (webdataset)",
    "text_files": "photos with text files beside them",
}


def split_of(name: str) -> Split | None:
    """The split that words of a path say, if they say one."""
    words = set(re.split(r"[^a-z]+", name.lower()))
    found: list[Split] = [split for split in SPLITS if not words.isdisjoint(SPLIT_WORDS[split])]
    return found[0] if len(found) == 1 else None


def _imagefolder(root: Path) -> Iterator[Source]:
    for folder in (root, *_folders(root)):
        if any((folder / name).is_file() for name in (imagefolder.LINES, imagefolder.TABLE)):
            split = None if folder == root else split_of(folder.name)
            if folder == root or split is not None:
                yield Source(folder, split)


def _token_file(root: Path) -> Iterator[Source]:
    files = [path for path in _files(root, (".txt", ".token")) if b"#0\t" in _head(path)]
    if len(files) != 1:
        yield from map(Source, files)
        return
    lists = [path for path in _files(root, (".txt",)) if path.stem.endswith("Images")]
    for path in lists:
        yield Source(files[0], split_of(path.stem), path)
    if not lists:
        yield Source(files[0])


def _karpathy(root: Path) -> Iterator[Source]:
    for path in _json_files(root):
        if b'"sentences"' in _head(path):
            names = {record.value.get("split") for record in stream_records(str(path), "images")}
            splits = {"train" if name == "restval" else name for name in names}
            present: list[Split] = [split for split in SPLITS if split in splits]
            yield from (Source(path, split) for split in present)


def _coco(root: Path) -> Iterator[Source]:
    for path in _json_files(root):
        head = _head(path)
        is_coco = b'"images"' in head or b'"annotations"' in head
        if is_coco and b'"sentences"' not in head and not _is_list(head):
            yield Source(path, split_of(path.stem))


def _jsonl(root: Path) -> Iterator[Source]:
    for path in _files(root, (".jsonl", ".json")):
        head = _head(path)
        first = head if path.suffix == ".json" else head.partition(b"\n")[0]
        if b'"image"' in first and (path.suffix == ".jsonl" or _is_list(head)):
            yield Source(path, split_of(path.stem))


def _table(root: Path) -> Iterator[Source]:
    for path in _files(root, (".csv", ".tsv", ".txt")):
        if path.name != imagefolder.TABLE and table.is_table(path):
            yield Source(path, split_of(path.stem))


def _packed(root: Path, suffixes: tuple[str, ...]) -> Iterator[Source]:
    """The root, once for each split that names of its files say."""
    files = [path for suffix in suffixes for path in root.rglob(f"*{suffix}")]
    splits = {split_of(str(path.relative_to(root).with_suffix(""))) for path in files}
    if None in splits:
        yield Source(root)
    else:
        present: list[Split] = [split for split in SPLITS if split in splits]
        yield from (Source(root, split) for split in present)


def _text_files(root: Path) -> Iterator[Source]:
    if not any(_has_pair(folder) for folder in (root, *_folders(root))):
        return
    named: list[tuple[Path, Split | None]] = [(f, split_of(f.name)) for f in _folders(root)]
    splits = [Source(folder, split) for folder, split in named if split is not None]
    yield from splits or [Source(root)]


def _has_pair(folder: Path) -> bool:
    names = {entry.name for entry in os.scandir(folder)}
    return any(
        stem + suffix in names
        for stem, end in map(os.path.splitext, names)
        if end.lower() in PHOTO_SUFFIXES
        for suffix in text_files.SUFFIXES
    )


_FINDERS: dict[Kind, Callable[[Path], Iterator[Source]]] = {
    "imagefolder": _imagefolder,
    "token_file": _token_file,
    "karpathy": _karpathy,
    "coco": _coco,
    "jsonl": _jsonl,
    "table": _table,
    "arrow": lambda root: _packed(root, (".arrow", ".parquet")),
    "webdataset": lambda root: _packed(root, (".tar",)),
    "text_files": _text_files,
}


def _is_list(head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"[")


def _json_files(root: Path) -> list[Path]:
    paths = [path for folder in (root, root / "annotations") for path in _files(folder, (".json",))]
    return [path for path in paths if not path.name.startswith(_NO_CAPTIONS)]


def _files(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Files of a folder, in order."""
    if not folder.is_dir():
        return []
    names = (entry.name for entry in os.scandir(folder) if entry.is_file())
    return [folder / name for name in sorted(names) if name.lower().endswith(suffixes)]


def _folders(root: Path, depth: int = 1) -> list[Path]:
    """Folders below, in order; links are not followed."""
    if depth == 0:
        return []
    here = sorted(
        Path(entry.path)
        for entry in os.scandir(root)
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
    )
    return [folder for child in here for folder in (child, *_folders(child, depth - 1))]


def photo_folder(root: Path, names: Sequence[str], split: Split | None) -> Path:
    """The folder below ``root`` that most of some photos are in, best one named after the split."""
    folders = [root, *_folders(root, _DEPTH)]

    def rank(folder: Path) -> tuple[int, bool, bool]:
        found = sum((folder / name).is_file() for name in names)
        return found, split is not None and split_of(folder.name) == split, folder == root

    return max(folders, key=rank)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD)
