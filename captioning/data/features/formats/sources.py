"""Which format a path is in, and the paths that a pattern or a folder stands for."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from captioning.data.features.formats import hdf5, lmdb, npz
from captioning.data.features.formats.base import AbstractSource
from captioning.data.features.formats.hdf5 import Hdf5Source
from captioning.data.features.formats.lmdb import LmdbSource
from captioning.data.features.formats.npz import ArchiveSource, FolderSource
from captioning.data.features.formats.tsv import TsvSource

KNOWN = ".tsv (also .tsv.0, .tsv.1, ...), .npz, .h5, .hdf5, .mdb or .lmdb"
_TSV = re.compile(r".*\.tsv(\.\d+)?", re.IGNORECASE)


def open_sources(
    paths: Sequence[str | Path], *, boxes: str | Path | None = None
) -> list[AbstractSource]:
    """The sources of features that paths name, in their order.

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
        raise ValueError(f"{boxes_folder}: boxes of their own go with a folder of .npz or .npy")
    return sources


def _matching(pattern: str | Path) -> list[Path]:
    path = Path(pattern)
    if path.exists():
        return [path]
    if matches := sorted(glob.glob(str(pattern)), key=_natural):
        return [Path(match) for match in matches]
    raise FileNotFoundError(f"{pattern}: no such file or folder; name the features to import")


def _natural(name: str) -> list[int | str]:
    """So that part 10 follows part 9."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _sources(path: Path, boxes: Path | None) -> list[AbstractSource]:
    if not path.is_dir():
        return [_file(path)]
    if (path / lmdb.DATA_FILE).is_file():
        return [LmdbSource(path)]
    names = sorted((item.name for item in path.iterdir() if item.is_file()), key=_natural)
    files = [path / name for name in names if _is_features(path / name)]
    if any(name.endswith(npz.SUFFIXES) for name in names):
        if files:
            raise ValueError(
                f"{path}: holds {files[0].name} beside files of numpy; name what is to be imported"
            )
        return [FolderSource(path, boxes=boxes)]
    if not files:
        raise ValueError(f"{path}: no features in there; known are {KNOWN}, and folders of .npz")
    return [_file(file) for file in files]


def _is_features(path: Path) -> bool:
    return path.suffix in (*hdf5.SUFFIXES, ".lmdb") or bool(_TSV.fullmatch(path.name))


def _file(path: Path) -> AbstractSource:
    if _TSV.fullmatch(path.name):
        return TsvSource(path)
    if path.suffix == ".npz":
        return ArchiveSource(path)
    if path.suffix in hdf5.SUFFIXES:
        return Hdf5Source(path)
    if path.suffix in (".mdb", ".lmdb"):
        return LmdbSource(path.parent if path.name == lmdb.DATA_FILE else path)
    raise ValueError(f"{path}: features must be one of {KNOWN}")
