"""Detect the layout of a folder of photos with captions, and its splits."""

from __future__ import annotations

import itertools
import mmap
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from captioning.config.setting_error import Setting, SettingError, SettingNotFoundError
from captioning.data.json_files import Record, parse_json
from captioning.data.json_streams import stream_records
from captioning.data.line_files import GZIP, ending, read_head, read_text
from captioning.data.photo_folder import PHOTO_SUFFIXES, UNREAD_SUFFIXES, has_photo_suffix
from captioning.data.readers import (
    arrow_files,
    flickr8k,
    imagefolder,
    json_forms,
    karpathy,
    line_pairs,
    table,
    text_files,
)
from captioning.data.readers.arrow_columns import splits_of_rows
from captioning.data.readers.caption_columns import ADDRESSES, ID_COLUMNS, has_addresses
from captioning.data.readers.generator_folders import (
    are_concepts,
    concepts_of,
    folder_captions,
)
from captioning.data.readers.own.kinds import KINDS, LAYOUTS, NAMES, Kind
from captioning.data.readers.own.named_photos import folders_below, has_photos
from captioning.data.readers.own.root import check_root
from captioning.data.readers.record_keys import (
    has_photo,
    names_photo_and_caption,
    no_captions,
    no_photo,
    stated_name,
)
from captioning.data.readers.split_words import SPLITS, Split, split_of

_COCO = re.compile(r'"(?:images|annotations)"\s*:\s*\[\s*[{\]]')
_HEAD = 1 << 16  # bytes from which a file is recognised
# Layouts with a file of captions, which may lie in the folder of its split: train/captions.csv.
_ONE_FILE: tuple[Kind, ...] = ("coco", "jsonl", "table")
_NO_CAPTIONS = (
    "instances", "person_keypoints", "panoptic", "image_info", "stuff", "dataset_info",
    "dataset_dict", "state.json",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Source:
    """A file or folder with the captions of one split, or of all splits.

    Attributes:
        path: file or folder.
        split: None: no name says which.
        images: list of the split's images, for a token file.
        column: column of Arrow files, where it says the split.
    """

    path: Path
    split: Split | None = None
    images: Path | None = None
    column: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The detected layout: how a folder holds its captions.

    Attributes:
        kind: the reader's kind.
        root: the folder.
        sources: sources in order; one for each split, or a single one for all.
        description: readable description, such as ``"an image folder (metadata.csv)"``.
        file_column: column with names of photos, if its name is unusual.
    """

    kind: Kind
    root: Path
    sources: tuple[Source, ...]
    description: str
    file_column: str | None = None

    @property
    def splits(self) -> tuple[Split, ...]:
        """Splits of the folder, in order."""
        return tuple(split for split in SPLITS if any(s.split == split for s in self.sources))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """State of the layout search: what is searched, where, and the problems found.

    Attributes:
        root: the folder.
        kind: the only one that is wanted, or None.
        annotations: the one file that counts, or None.
        file_column, caption_columns: columns of tables; None: usual names.
        problems: why files cannot be read.
        lacking: what objects of photos in JSON lack.
        in_splits: files of folders whose names say a split count, not those of the root.
    """

    root: Path
    kind: Kind | None
    annotations: Path | None
    file_column: str | None
    caption_columns: str | Sequence[str] | None
    problems: list[SettingError] = field(default_factory=list)
    lacking: list[SettingError] = field(default_factory=list)
    in_splits: bool = False

    def files(self, suffixes: tuple[str, ...], *folders: str) -> list[Path]:
        """Files that may hold captions, in order."""
        if self.annotations is not None:
            return [self.annotations] if ending(self.annotations) in suffixes else []
        places = [self.root / folder for folder in folders or ("",)]
        if self.in_splits:
            places = [folder for folder in folders_below(self.root) if split_of(folder.name)]
        return [path for folder in places for path in _files(folder, suffixes)]

    def split_of(self, path: Path) -> Split | None:
        """Return the split named by a file, or by the searched folder."""
        return split_of_file(path, self.root) if self.in_splits else split_of(path.stem)

    def json_files(self) -> list[Path]:
        """Return JSON files that may hold captions."""
        paths = self.files((".json",), "", "annotations")
        return [path for path in paths if not path.name.startswith(_NO_CAPTIONS)]

    def not_found(self) -> SettingError | SettingNotFoundError:
        """Return the error that no captions were found; it lists contents and missing files."""
        is_chosen = self.annotations is not None or self.kind is not None
        if self.lacking or (self.problems and is_chosen):
            return [*self.lacking, *self.problems][0]
        if self.annotations is not None:
            return SettingNotFoundError(
                self.annotations,
                "no captions are found in it",
                Setting("annotations"),
                " is for metadata.csv, metadata.jsonl, COCO's or Karpathy's JSON, JSON Lines, a "
                "table or a token file (docs/tutorials/own_photos.md)",
            )
        wanted = LAYOUTS if self.kind is None else f"the layout {self.kind!r}"
        problem, remedy = "no captions are found in it", self._below()
        if self.problems:
            first, *others = self.problems[:4]
            shown = ", ".join(place(Path(str(other.place)), self.root) for other in others)
            problem += f": {first.finding}" + (f" (nor in {shown})" if shown else "")
            remedy = (*first.remedy, *remedy)
        else:
            there = f"it holds {_inventory(self.root)}, and needs {wanted}{_looks(self.root)}"
            remedy = (there, *remedy)
        return SettingNotFoundError(self.root, problem, *remedy)

    def _below(self) -> tuple[str | Setting, ...]:
        """Return the hint about files in subfolders, which are read only on request."""
        suffixes = (".csv", ".tsv", ".json", *json_forms.LINES)
        folders = (_files(folder, suffixes) for folder in folders_below(self.root))
        files = (path for files in folders for path in files[:1])
        names = [place(path, self.root) for path in files if not _is_beside_photo(path)]
        if not names:
            return ()
        return "; ", Setting("annotations"), f" names a file in a folder, such as {names[:3]}"


def recognise(
    folder: str | Path,
    *,
    kind: Kind | None = None,
    annotations: str | None = None,
    file_column: str | None = None,
    caption_columns: str | Sequence[str] | None = None,
) -> Layout:
    """Detect the layout of a folder.

    Args:
        folder: folder with the photos.
        kind: the layout's kind; None: the first of `KINDS` that is there.
        annotations: name of the one file that counts, of several; None: all that are there.
        file_column, caption_columns: columns of tables; None: usual names.

    Raises:
        FileNotFoundError: no such folder, no such file, or nothing that is known.
        ValueError: an unknown kind, several files without names of splits, or an unreadable table
            where a table is required.
    """
    root = Path(folder)
    check_root(root, annotations)
    if kind is not None and kind not in KINDS:
        raise ValueError(f"layout must be one of {KINDS}: got {kind!r}")
    search = _Search(
        root=root,
        kind=kind,
        annotations=None if annotations is None else root / annotations,
        file_column=file_column,
        caption_columns=caption_columns,
    )
    kinds = KINDS if kind is None else (kind,)
    found = _first(search, kinds)
    if found is None and annotations is None:
        found = _first(replace(search, in_splits=True), kinds)
    if found is None and file_column is None:
        found = _by_ids(search, kinds)
    if found is None:
        raise search.not_found()
    return found


def _by_ids(search: _Search, kinds: Sequence[Kind]) -> Layout | None:
    """Return a layout whose photos are named by ids, or by cells of a table without header."""
    columns = [*ID_COLUMNS, "0", "1"]
    named: list[Kind] = [kind for kind in kinds if kind in _FIRST_NAMES]
    for column, in_splits in itertools.product(columns, (False, True)):
        own = replace(search, file_column=column, in_splits=in_splits, problems=[], lacking=[])
        if len(own.files((".json", *json_forms.LINES, ".csv", ".tsv", ".txt"))) > _MOST_FILES:
            continue
        for kind in named:
            sources = [
                source
                for source in _FINDERS[kind](own)
                if has_photos(
                    search.root,
                    _FIRST_NAMES[kind](source.path, column),
                    source.split,
                    share=1.0 if column.isdecimal() else 0.5,
                )
            ]
            if sources:
                found = _layout(kind, search.root, sources)
                said = f"{found.description}; photos are named by {column}"
                return replace(found, description=said, file_column=column)
    return None


def _names_in_lines(path: Path, column: str) -> list[str]:
    names = (stated_name(record, column) for record in json_forms.first_records(path))
    return [name for name in names if name]


def _names_in_table(path: Path, column: str) -> list[str]:
    return table.file_names(path, column, None, _NUM_NAMES)


_MOST_FILES = 100  # more are of photos, each its own
_NUM_NAMES = 20  # photos that decide whether ids are names
_FIRST_NAMES: dict[Kind, Callable[[Path, str], list[str]]] = {
    "jsonl": _names_in_lines,
    "table": _names_in_table,
}


def _first(search: _Search, kinds: Sequence[Kind]) -> Layout | None:
    """Return the first matching layout."""
    for kind in kinds:
        if kind in _ONE_FILE or not search.in_splits:
            sources = list(_FINDERS[kind](search))
            if sources:
                return _layout(kind, search.root, sources)
    return None


def _layout(kind: Kind, root: Path, sources: Sequence[Source]) -> Layout:
    _check_splits(root, [(source.images or source.path, source.split) for source in sources])
    names = [place(source.path, root) for source in sources]
    shown = ", ".join(dict.fromkeys(name for name in names if name != "."))
    description = NAMES[kind] + (f" ({shown})" if shown and len(shown) < 120 else "")
    return Layout(kind=kind, root=root, sources=tuple(sources), description=description)


def _check_splits(root: Path, found: Sequence[tuple[Path, Split | None]]) -> None:
    """Raise an error that lists the file names without a split, if there are several files."""
    without = [
        "the folder itself" if path == root else place(path, root)
        for path, split in found
        if split is None
    ]
    if not without or len(found) == 1:
        return
    more = f" and {len(without) - 5} more" if len(without) > 5 else ""
    if len(without) == len(found):
        raise SettingError(
            root,
            f"{without[:5]}{more} could all be meant, and their names do not say train, "
            "validation or test",
            "choose ",
            Setting("annotations", "NAME"),
            ", or another ",
            Setting("layout"),
        )
    splits = [split for split in SPLITS if any(split == other for _, other in found)]
    raise SettingError(
        root,
        f"the names of {without[:5]}{more} do not say train, validation or test (or say "
        f"several), and others there say {', '.join(splits)}",
        "rename them, or move them out of the folder",
    )


def place(path: Path, root: Path) -> str:
    """Return a path for messages: relative to the root if it lies below it."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _concepts(search: _Search) -> Iterator[Source]:
    for path in search.files((".json",), "", "training_concepts", "config"):
        head = _head(path)
        if '"prompt_source"' in head and are_concepts(parse_json(read_text(path), str(path))):
            splits = {concept.split for concept in concepts_of(path, search.root)}
            yield from (
                Source(path, split if len(splits) > 1 else None)
                for split in SPLITS
                if split in splits
            )


def _imagefolder(search: _Search) -> Iterator[Source]:
    root, names = search.root, (imagefolder.LINES, imagefolder.TABLE)
    if search.file_column is not None:  # of a table or JSON Lines
        return
    if search.annotations is not None:
        if search.annotations.name in names:
            yield Source(search.annotations.parent)
        return
    folders = [root, *folders_below(root)]
    found = [folder for folder in folders if any((folder / name).is_file() for name in names)]
    if search.kind is None:
        found = [folder for folder in found if imagefolder.has_file_names(folder)]
    splits: list[Split | None] = [split_of(place(folder, root)) for folder in found]
    for folder, split in zip(found, splits, strict=True):
        # beside folders of splits, one without is refused; elsewhere it may be anything
        if folder == root or any(splits):
            yield Source(folder, split)


def _token_file(search: _Search) -> Iterator[Source]:
    files = [
        path for path in search.files((".txt", ".token")) if flickr8k.FIRST_LINE.search(_head(path))
    ]
    if len(files) != 1:
        yield from map(Source, files)
        return
    lists = [path for path in _files(files[0].parent, (".txt",)) if path.stem.endswith("Images")]
    for path in lists:
        yield Source(files[0], split_of(path.stem), path)
    if not lists:
        yield Source(files[0])


def _karpathy(search: _Search) -> Iterator[Source]:
    for path in search.json_files():
        head = _head(path)
        if '"sentences"' in head and not _is_list(head):
            names = {record.value.get("split") for record in stream_records(str(path), "images")}
            splits = {karpathy.split_named(name) for name in names}
            present: list[Split | None] = [split for split in SPLITS if split in splits]
            # without one the reader says what is wrong
            yield from (Source(path, split) for split in present or [None])


def _coco(search: _Search) -> Iterator[Source]:
    for path in search.json_files():
        head = _head(path)
        is_coco = _COCO.search(head) is not None
        # files of photos alone, as of test sets whose captions are withheld, or of boxes are none
        is_asked_for = search.kind == "coco" or search.annotations is not None
        is_coco = is_coco and (
            is_asked_for or (_holds(path, '"caption"') and _holds(path, '"images"'))
        )
        if is_coco and '"sentences"' not in head and not _is_list(head):
            yield Source(path, search.split_of(path))


def _jsonl(search: _Search) -> Iterator[Source]:
    is_asked_for = search.kind == "jsonl" or search.annotations is not None
    paths = [*search.files(json_forms.LINES), *search.json_files()]
    found_alone: list[Path] = []  # files about one photo, of which there are many
    for path in (path for path in paths if is_asked_for or not _is_beside_photo(path)):
        try:
            records = json_forms.first_records(path)
        except SettingError as error:
            search.problems.append(error)
            continue
        columns = search.file_column, search.caption_columns
        found = [record for record in records if names_photo_and_caption(record, *columns)]
        # names as keys may be those of photos with labels of classes
        is_meant = is_asked_for or "cap" in path.stem.lower() or not _are_labels(found)
        if is_asked_for or (found and is_meant):
            if [record.where for record in records] == [str(path)] and not _is_list(_head(path)):
                found_alone.append(path)
            else:
                yield Source(path, search.split_of(path))
        elif records and not found and has_photo(records[0], search.file_column):
            search.lacking.append(no_captions(records[0]))
        elif records and not found:
            search.problems.append(no_photo(records[0]))
    if len(found_alone) == 1:
        yield Source(found_alone[0], search.split_of(found_alone[0]))


def _are_labels(records: Sequence[Record]) -> bool:
    """Whether the objects are of names with texts alone, which may be classes."""
    return all(record.where.endswith("'") for record in records)


def _table(search: _Search) -> Iterator[Source]:
    is_asked_for = search.kind == "table" or search.annotations is not None
    paths = search.files((".csv", ".tsv", ".txt"))
    paths.sort(key=lambda path: path.name == imagefolder.TABLE)
    known: set[Path] = set()  # folders of others than metadata.csv
    for path in paths:
        if path.name == imagefolder.TABLE and path.parent in known:
            continue
        problem = table.problem_of(path, search.file_column, search.caption_columns)
        if problem is None:
            known.add(path.parent)
            yield Source(path, search.split_of(path))
        elif is_asked_for or ending(path) != ".txt":  # texts may be about anything
            search.problems.append(problem)


def _arrow(search: _Search) -> Iterator[Source]:
    if search.annotations is None:
        files = arrow_files.of_photos(arrow_files.all_files(search.root))
        named = list(_packed(search.root, files))
        # files that all are of one split may have rows of several: test-00000.parquet of a hub's
        # data set with Karpathy's splits in a column
        column, said = splits_of_rows(files) if len(named) == 1 else ("", [])
        yield from [Source(search.root, split, column=column) for split in said] or named


def _webdataset(search: _Search) -> Iterator[Source]:
    if search.annotations is None:
        yield from _packed(search.root, shards_of(search.root))


def shards_of(root: Path) -> list[Path]:
    """Return tar files below a folder, in order."""
    names = sorted(root.rglob("*.tar"))
    return [path for path in names if not path.name.startswith((".", "tmp"))]


def split_of_file(path: Path, root: Path) -> Split | None:
    """Return the split that a file's path below the root names."""
    return split_of(place(path.with_suffix(""), root))


def _packed(root: Path, files: Sequence[Path]) -> Iterator[Source]:
    """Return the root as a source, once for each split that its files' names give."""
    splits: dict[Path, Split | None] = {path: split_of_file(path, root) for path in files}
    if any(splits.values()):
        _check_splits(root, list(splits.items()))
    present: list[Split | None] = [split for split in (*SPLITS, None) if split in splits.values()]
    yield from (Source(root, split) for split in present)


def _line_pairs(search: _Search) -> Iterator[Source]:
    if search.annotations is None:
        for path in line_pairs.lists_below(search.root):
            yield Source(path, search.split_of(path))


def _text_files(search: _Search) -> Iterator[Source]:
    root = search.root
    if search.annotations is not None:
        return
    pairs = list(text_files.pairs_below(root))
    words = folder_captions(pairs)
    pairs = [(photo, texts) for photo, texts in pairs if texts]
    # one of each kind of text a folder: JSON beside photos may be about anything
    kinds = {(text.suffix, photo.parent): (text, photo) for photo, texts in pairs for text in texts}
    found = [
        (text, photo)
        for text, photo in kinds.values()
        if text.suffix.lower() in text_files.TEXTS
        or text_files.has_captions(text, search.caption_columns, search.problems)
    ]
    folders = dict.fromkeys(photo.parent for text, photo in found)
    sources = dict.fromkeys(_with_split(folder, root) for folder in folders)
    are_apart = any(text.parent != photo.parent for text, photo in found)
    if not are_apart and any(source.split for source in sources):
        yield from sources
    elif sources or words:
        yield Source(root)


def _file_names(search: _Search) -> Iterator[Source]:
    if search.kind == "file_names":  # only where it is asked for
        yield Source(search.root)


def _with_split(folder: Path, root: Path) -> Source:
    """Return the topmost parent folder whose name gives a split, or the folder itself."""
    inside = folder.relative_to(root)
    for above in (*reversed(inside.parents), inside):
        split = split_of(str(above))
        if split is not None:
            return Source(root / above, split)
    return Source(folder)


_FINDERS: dict[Kind, Callable[[_Search], Iterator[Source]]] = {
    "concepts": _concepts,
    "imagefolder": _imagefolder,
    "token_file": _token_file,
    "karpathy": _karpathy,
    "coco": _coco,
    "jsonl": _jsonl,
    "table": _table,
    "arrow": _arrow,
    "webdataset": _webdataset,
    "line_pairs": _line_pairs,
    "text_files": _text_files,
    "file_names": _file_names,
}


def _is_beside_photo(path: Path) -> bool:
    """Whether a file is about a photo beside it."""
    ends = (*PHOTO_SUFFIXES, *UNREAD_SUFFIXES)
    return has_photo_suffix(path.stem) or any(path.with_suffix(end).is_file() for end in ends)


_ADDRESSES = "; ".join(ADDRESSES)
_TABLES = "write names of photos and captions as CSV"
_LOOKS = {
    (".xlsx", ".xls", ".ods"): "a spreadsheet: save it as CSV",
    (".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst"): "packed shards: unpack them to .tar",
    (".zip", ".7z", ".rar"): "an archive: unpack it",
    (".db", ".sqlite", ".sqlite3"): f"a database: {_TABLES}",
    (".pkl", ".pickle", ".pt", ".pth"): f"objects of Python, whose code is not run: {_TABLES}",
    (".h5", ".hdf5", ".npz", ".npy", ".mat", ".mdb"): f"arrays: {_TABLES}",
    (".xml",): f"XML: {_TABLES}",
    (".yaml", ".yml"): "YAML that is beside no photo: write it as JSON",
    (".md", ".html", ".docx", ".pdf", ".rtf"): "a document: write a .txt beside each photo",
}


def _looks(root: Path) -> str:
    """Describe a file that may hold the captions, and what it lacks."""
    for place_, _, names in os.walk(root):
        for name in sorted(names):
            path = Path(place_, name)
            said = next((x for ends, x in _LOOKS.items() if name.lower().endswith(ends)), "")
            if not said and ending(path) in (".txt", ".token"):
                line = _head(path).strip().partition("\n")[0]
                said = f"text that begins with {line!r:.60} and names no photo there"
                said = _ADDRESSES if has_addresses([line]) else said if line else "empty"
            if said:
                verb = "" if said == _ADDRESSES else "is "
                return f"; {place(path, root)} {verb}{said}"
    return ""


def _inventory(root: Path) -> str:
    """Describe the kinds of files in and below a folder, most frequent first."""
    names = (name for _, _, files in os.walk(root) for name in files)
    ends = Counter(os.path.splitext(name)[1].lower() or "files without suffix" for name in names)
    return ", ".join(f"{number:,} {end}" for end, number in ends.most_common(5)) or "nothing"


def _is_list(head: str) -> bool:
    return head.lstrip().startswith("[")


def _files(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Return the files of a folder, in order."""
    if not folder.is_dir():
        return []
    names = (entry.name for entry in os.scandir(folder) if entry.is_file())
    paths = [folder / name for name in sorted(names) if ending(Path(name)) in suffixes]
    known = {path.name for path in paths}  # a file packed by gzip may lie beside what it holds
    return [
        path for path in paths if path.suffix != GZIP or path.name.removesuffix(GZIP) not in known
    ]


def _holds(path: Path, text: str) -> bool:
    """Whether a file contains a text."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        is_plain = content.find(b"\0") < 0 and path.suffix != GZIP
        return content.find(text.encode()) >= 0 if is_plain else text in read_text(path)


def _head(path: Path) -> str:
    return read_head(path, _HEAD)
