"""Import region features computed elsewhere, with their boxes, into a feature store.

``captioning import-features FILE... --folder FOLDER`` reads the formats in
`captioning.data.features.formats`.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from captioning.data.features.formats import (
    HDF5_SUFFIXES,
    LMDB_FILE,
    NUMPY_SUFFIXES,
    AbstractSource,
    ArchiveSource,
    FolderSource,
    Hdf5Source,
    LmdbSource,
    Record,
    TsvSource,
)
from captioning.data.features.index import (
    BOX_BYTES,
    INDEX_NAME,
    LOCK_NAME,
    FeatureIndex,
    load_index,
)
from captioning.data.features.store import FeatureStore, plain_id
from captioning.data.features.stored_rows import NOT_FINITE
from captioning.data.features.writer import FeatureWriter, check_space
from captioning.data.json_files import load_json
from captioning.runtime.file_lock import locked


def read_photo_sizes(path: str | Path) -> dict[str, tuple[float, float]]:
    """Read width and height in pixels by image id, from COCO's ``images`` list.

    So COCO's annotations have them, and ruotianluo's ``cocotalk.json``.

    Raises:
        FileNotFoundError, ValueError: no such file, or another form.
    """
    return {
        record.identifier("id"): (
            float(record.integer("width", 1)),
            float(record.integer("height", 1)),
        )
        for record in load_json(path).records("images")
    }


KNOWN = ".tsv (also .tsv.0, .tsv.1, ...), .npz, .h5, .hdf5, .mdb or .lmdb"
_TSV = re.compile(r".*\.tsv(\.\d+)?", re.IGNORECASE)


def open_sources(
    paths: Sequence[str | Path], *, boxes: str | Path | None = None
) -> list[AbstractSource]:
    """Open the sources of features that paths name, in order.

    Args:
        paths: files, folders, or patterns such as ``trainval/*.tsv.*``. A folder is an LMDB, or has
            a file of numpy for each image, or holds files of the other formats.
        boxes: a folder of boxes for folders of numpy's files.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: files of unknown formats, or a folder with several kinds.
    """
    boxes_folder = None if boxes is None else Path(boxes)
    if boxes_folder is not None and not boxes_folder.is_dir():
        raise FileNotFoundError(f"{boxes_folder}: no such folder of boxes")
    sources = [
        source
        for pattern in paths
        for path in _matching(pattern)
        for source in _sources(path, boxes_folder)
    ]
    if boxes_folder is not None and not any(isinstance(s, FolderSource) for s in sources):
        raise ValueError(
            f"{boxes_folder}: --boxes needs features in a folder of .npz or .npy files"
        )
    return sources


def _matching(pattern: str | Path) -> list[Path]:
    path = Path(pattern)
    if path.exists():
        return [path]
    if matches := sorted(glob.glob(str(pattern)), key=_natural):
        return [Path(match) for match in matches]
    raise FileNotFoundError(f"{pattern}: no such file or folder; name the features to import")


def _natural(name: str) -> list[int | str]:
    """Return a sort key that puts part 10 after part 9."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _sources(path: Path, boxes: Path | None) -> list[AbstractSource]:
    if not path.is_dir():
        return [_file(path)]
    if (path / LMDB_FILE).is_file():
        return [LmdbSource(path)]
    names = sorted((item.name for item in path.iterdir() if item.is_file()), key=_natural)
    files = [path / name for name in names if _is_features(path / name)]
    if any(name.endswith(NUMPY_SUFFIXES) for name in names):
        if files:
            raise ValueError(
                f"{path}: holds {files[0].name} beside files of numpy; name the files to import"
            )
        return [FolderSource(path, boxes=boxes)]
    if not files:
        raise ValueError(f"{path}: no features in there; known are {KNOWN}, and folders of .npz")
    return [_file(file) for file in files]


def _is_features(path: Path) -> bool:
    return path.suffix in (*HDF5_SUFFIXES, ".lmdb") or bool(_TSV.fullmatch(path.name))


def _file(path: Path) -> AbstractSource:
    if _TSV.fullmatch(path.name):
        return TsvSource(path)
    if path.suffix == ".npz":
        return ArchiveSource(path)
    if path.suffix in HDF5_SUFFIXES:
        return Hdf5Source(path)
    if path.suffix in (".mdb", ".lmdb"):
        return LmdbSource(path.parent if path.name == LMDB_FILE else path)
    raise ValueError(f"{path}: features must be one of {KNOWN}")


MAX_BOXES = 1000
OVERSHOOT = 1.5  # pixels by which a detector's box may leave the photo

Size = tuple[float, float]


def import_features(
    sources: Sequence[str | Path],
    *,
    folder: str | Path,
    name: str = "bottom_up",
    image_ids: Collection[str] | None = None,
    dim: int | None = None,
    chunk_size: int = 1000,
    boxes: str | Path | None = None,
    sizes: Mapping[str, Size] | None = None,
    progress: bool = False,
) -> FeatureStore:
    """Copy the features of all ``sources`` into one store as ``float16``, by image id.

    An import that was killed resumes where it stopped. Boxes are kept as shares of the photo's
    sides, where all sources have them.

    Args:
        sources: files, folders or patterns, see `open_sources`.
        folder: the store's folder.
        name: name of the features; written into the store.
        image_ids: images that must be there at the end; others are left out. None takes all.
        dim: feature size that is expected; None: the first image's.
        chunk_size: images between two commits.
        boxes: a folder of boxes, for folders of numpy's files.
        sizes: width and height of photos by image id, for boxes in pixels without them.
        progress: show a bar.

    Raises:
        FileNotFoundError: a source does not exist.
        ValueError: damaged, repeated, non-finite or missing features, or of another size.
        OSError: not enough space.
    """
    target = Path(folder)
    opened = open_sources(sources, boxes=boxes)
    check = _Check(dim=dim, sizes=sizes)
    first = next((r for source in opened for r in source.records(lambda *_: True)), None)
    if first is None:
        raise ValueError(f"{', '.join(map(str, sources))} hold no features; give other files")
    first_rows = check(first)
    fresh = FeatureIndex(
        identity=name,
        kind="imported",
        image_size=0,
        dim=first_rows.features.shape[1],
        has_boxes=first_rows.boxes is not None,
    )
    target.mkdir(parents=True, exist_ok=True)
    console = Console()
    with locked(target / LOCK_NAME, subject=str(target), notify=console.print):
        index = _index(target, fresh)
        total = sum(source.count() for source in opened)
        remaining = _remaining(total, index, image_ids)
        row_bytes = index.row_bytes + BOX_BYTES * index.has_boxes
        needed = remaining * len(first_rows.features) * row_bytes
        check_space(target, needed, remaining, console.print if progress else lambda _: None)
        selection = _Selection(imported=index.positions, required=image_ids)
        with FeatureWriter(folder=target, index=index) as writer, _bar(progress, total) as bar:
            task = bar.add_task("importing", total=total)
            for number, rows in enumerate(_rows(opened, selection, check), start=1):
                writer.append(rows.image_id, rows.features, boxes=rows.boxes, size=rows.size)
                if number % chunk_size == 0:
                    writer.commit()
                    bar.update(task, completed=selection.num_seen)
            writer.commit()
            bar.update(task, completed=total)
    _require(index, image_ids, target)
    return FeatureStore.open(target)


@dataclass(kw_only=True)
class _Selection:
    """Selection of the images that are read from the sources.

    Attributes:
        imported: those that an earlier import has brought.
        required: those that are asked for; None for all.
    """

    imported: Mapping[str, int]
    required: Collection[str] | None = None
    num_seen: int = 0
    _known: set[str] = field(default_factory=set)
    _plain: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self._plain = {plain_id(image_id) for image_id in self.required or ()}
        self.imported = dict(self.imported)  # what is imported now does not count

    def __call__(self, image_id: str, where: str) -> bool:
        if image_id in self._known:
            raise ValueError(f"{where}: image {image_id} occurs twice; remove one of the two")
        self._known.add(image_id)
        self.num_seen += 1
        if self.required is not None and plain_id(image_id) not in self._plain:
            return False
        return image_id not in self.imported


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """A record in the store's format: ``(n, D) float16``, boxes ``(n, 4) float32`` as fractions."""

    image_id: str
    features: np.ndarray
    boxes: np.ndarray | None
    size: Size | None


class _Check:
    """Check of records, which also converts them to the store's format.

    Args:
        dim: feature size that is expected; None for that of the first record.
        sizes: width and height of photos by image id.
    """

    def __init__(self, *, dim: int | None = None, sizes: Mapping[str, Size] | None = None) -> None:
        self.dim, self.has_boxes = dim, None
        self.sizes = {plain_id(name): size for name, size in (sizes or {}).items()}

    def __call__(self, record: Record) -> _Rows:
        features, where = record.features, record.where
        if features.ndim != 2 or not 1 <= len(features) <= MAX_BOXES or not features.shape[1]:
            raise ValueError(
                f"{where}: features must be (n, D) with 1 <= n <= {MAX_BOXES}: got {features.shape}"
            )
        self.dim = self.dim or features.shape[1]
        if features.shape[1] != self.dim:
            raise ValueError(
                f"{where}: features must have {self.dim} values: got {features.shape[1]}"
            )
        halves = _halves(features)
        largest = (halves.view(np.uint16) & 0x7FFF).max()  # without signs these order as numbers
        if largest >= NOT_FINITE:
            raise ValueError(f"{where}: features are NaN or too large for float16 (65504)")
        if not largest:
            raise ValueError(f"{where}: all features are zero; was the file written in full?")
        size = record.size or self.sizes.get(plain_id(record.image_id))
        boxes = self._boxes(record, size)
        return _Rows(image_id=record.image_id, features=halves, boxes=boxes, size=size)

    def _boxes(self, record: Record, size: Size | None) -> np.ndarray | None:
        if self.has_boxes is None:
            self.has_boxes = record.boxes is not None
        if (record.boxes is not None) != self.has_boxes:
            raise ValueError(
                f"{record.where}: has {'boxes' if record.boxes is not None else 'no boxes'}, unlike"
                " the images before; import these files into folders of their own"
            )
        if record.boxes is None:
            return None
        boxes = record.boxes.astype(np.float64)
        if size is not None and not all(1 <= side < 10**6 for side in size):
            raise ValueError(f"{record.where}: {size[0]:g}x{size[1]:g} is not a size of a photo")
        if not record.are_shares:
            if size is None:
                raise ValueError(
                    f"{record.where}: boxes are in pixels, but the photo's size is missing; give "
                    "sizes (--sizes FILE with the images of COCO's annotations)"
                )
            boxes /= np.array([*size, *size])
        _check_boxes(boxes, size or (1000.0, 1000.0), record)
        return np.ascontiguousarray(boxes.clip(0, 1), dtype=np.float32)


def _halves(features: np.ndarray) -> np.ndarray:
    """Convert to ``float16``; torch is five times as fast as numpy."""
    if features.dtype == np.float16:
        return np.ascontiguousarray(features)
    single = np.array(features, dtype=np.float32, order="C")
    return torch.from_numpy(single).half().numpy()


def _check_boxes(shares: np.ndarray, size: Size, record: Record) -> None:
    slack = np.array([*size, *size])
    is_wrong = ~np.isfinite(shares) | (shares * slack < -OVERSHOOT)
    with np.errstate(invalid="ignore"):
        is_wrong |= (shares - 1) * slack > OVERSHOOT
        is_turned = (shares[:, 2:] < shares[:, :2]).any(1)
    wrong = np.flatnonzero(is_wrong.any(1) | is_turned)
    if len(wrong):
        box = ", ".join(f"{value:g}" for value in record.boxes[wrong[0]])  # type: ignore[index]
        raise ValueError(
            f"{record.where}: box {wrong[0]} ({box}) must be (x1, y1, x2, y2) inside the photo"
            + ("" if record.are_shares else f" of {size[0]:g}x{size[1]:g} pixels")
        )


def _rows(
    sources: Sequence[AbstractSource], selection: _Selection, check: _Check
) -> Iterator[_Rows]:
    for source in sources:
        for record in source.records(selection):
            yield check(record)


def _index(target: Path, fresh: FeatureIndex) -> FeatureIndex:
    if not (target / INDEX_NAME).exists():
        return fresh
    index = load_index(target)
    names = ("identity", "kind", "dim", "has_boxes")
    if [getattr(index, name) for name in names] != [getattr(fresh, name) for name in names]:
        raise ValueError(
            f"{target}: holds {_described(index)}, not {_described(fresh)}; choose another folder"
        )
    return index


def _remaining(total: int, index: FeatureIndex, image_ids: Collection[str] | None) -> int:
    """Return an upper bound of the images still to import, given the ``total`` of all sources."""
    if image_ids is None:
        return max(total - len(index.positions), 0)
    imported = {plain_id(image_id) for image_id in index.positions}
    return min(total, len({plain_id(image_id) for image_id in image_ids} - imported))


def _described(index: FeatureIndex) -> str:
    boxes = "with boxes" if index.has_boxes else "without boxes"
    return f"{index.kind} features {index.identity!r} of size {index.dim} {boxes}"


def _require(index: FeatureIndex, required: Collection[str] | None, target: Path) -> None:
    known = {plain_id(key) for key in index.positions} if required else set()
    missing = sorted(name for name in required or () if plain_id(name) not in known)
    if missing:
        raise ValueError(
            f"{target}: {len(missing)} of {len(required or ())} images have no features in the "
            f"files given, such as {', '.join(missing[:3])}; add the file that holds them"
        )


def _bar(shown: bool, total: int) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), disable=not shown)
