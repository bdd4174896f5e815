"""Find the Arrow and Parquet files of a split, in the folder layouts of `datasets`."""

from __future__ import annotations

import os
from pathlib import Path

from captioning.config.setting_error import Setting, SettingError, SettingNotFoundError
from captioning.data.json_files import load_json
from captioning.data.photo_folder import checked_file_name
from captioning.data.readers.packed import Part
from captioning.data.readers.shard_names import shard_files
from captioning.data.readers.split_words import SPLIT_WORDS, split_of
from captioning.vision.shards.arrow_rows import SUFFIXES, is_parquet

_STATS = "_stats.json"  # behind a shard's number, by img2dataset
_STATE = "state.json"  # of a folder that `save_to_disk` wrote
_INDICES = ("_indices_files", "_indices_data_files")  # rows in another order, as it once wrote


def table_files(folder: str | Path, files: str | list[str] | None, split: Part) -> list[Path]:
    """Return the files of a split, in order.

    Args:
        folder: folder of the data set.
        files: names with ``{0..4}``, ``*`` and ``?``; None: those whose path below the folder has
            a word for the split, such as ``train-00000-of-00005.parquet``.
        split: ``"train"``, ``"val"`` or ``"test"``; ``"all"``: whatever the path is.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: files of another kind, or of both kinds.
    """
    if files is not None:
        named = shard_files(folder, files)
        foreign = next((path for path in named if path.suffix not in SUFFIXES), None)
        if foreign is not None:
            raise SettingError(foreign, "neither .arrow nor .parquet", "correct ", Setting("files"))
        return named
    known = all_files(Path(folder))
    names = {path: path.relative_to(folder).as_posix() for path in known}
    chosen = [path for path in known if split in ("all", split_of(names[path]))]
    if not chosen:
        shown = f" ({known[0]} and {len(known) - 1} more are there)" if known else ""
        said = "" if split == "all" else f" whose name or folder says {SPLIT_WORDS[split]} alone"
        raise SettingNotFoundError(
            folder,
            f"no .arrow or .parquet file{said}{shown}",
            "name them by ",
            Setting("files"),
            ", or by ",
            Setting("split_column"),
            " the column that says it, or divide one set by ",
            Setting("held_out", "0.01"),
        )
    ends = sorted({path.suffix for path in chosen})
    if len(ends) > 1:
        raise SettingError(
            folder, f"both {' and '.join(ends)} files", "name those wanted by ", Setting("files")
        )
    return chosen


def all_files(folder: Path) -> list[Path]:
    """Return Arrow and Parquet files below a folder, without the caches of `datasets`.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: a saved data set whose rows stand in another order.
    """
    if not folder.is_dir():
        raise SettingNotFoundError(folder, "no such folder", "correct ", Setting("folder"))
    paths = [
        Path(place, name)
        for place, _, names in os.walk(folder)
        for name in names
        # results of `map` and of `shuffle` are kept beside the data
        if name.endswith(SUFFIXES) and not name.startswith((".", "cache-", "tmp"))
    ]
    listed = {parent: _listed(parent) for parent in {path.parent for path in paths}}
    return sorted(
        path
        for path in paths
        if listed[path.parent] is None or path.name in (listed[path.parent] or ())
    )


def of_photos(files: list[Path]) -> list[Path]:
    """Drop the tables that img2dataset writes beside its shards or photo folders."""
    return [path for path in files if not (is_parquet(path) and _is_beside(path))]


def _is_beside(path: Path) -> bool:
    is_folder = path.with_suffix("").is_dir() and path.with_name(f"{path.stem}{_STATS}").is_file()
    return path.with_suffix(".tar").is_file() or is_folder


def _listed(folder: Path) -> list[str] | None:
    """Return the file names listed by a saved dataset; None for other folders."""
    path = folder / _STATE
    if not path.is_file():
        return None
    state = load_json(path)
    if any(state.value.get(key) for key in _INDICES):
        problem = "its rows are chosen by a file of indices, which is not read"
        raise SettingError(path, problem, "save the data set again with datasets 2 or newer")
    return [
        checked_file_name(record.text("filename"), record.where)
        for record in state.records("_data_files")
    ]
