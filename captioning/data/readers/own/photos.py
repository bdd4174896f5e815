"""Where the photos lie that annotations name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from captioning.data.photo_folder import PHOTO_SUFFIXES, has_photo_suffix
from captioning.data.readers.split_words import Split, split_of
from captioning.setting_error import Setting, SettingError

_DEPTH = 3  # folders below that are looked into


def photo_folder(root: Path, names: Sequence[str], split: Split | None) -> Path:
    """The folder below ``root`` that most of some photos are in.

    Where the path of such a folder says the split, folders of other splits do not count. Of equal
    ones, that of the split comes first, then ``root`` itself.

    Raises:
        ValueError: several folders have them; lists these.
    """
    names = [name for name in names if not Path(name).is_absolute()]  # which are in no folder
    folders = [root, *folders_below(root, _DEPTH)]
    splits = {folder: split_of(str(folder.relative_to(root))) for folder in folders}
    counts = {folder: sum(_is_there(folder, name) for name in names) for folder in folders}
    of_split = [f for f in folders if split is not None and splits[f] == split]
    if any(counts[folder] for folder in of_split):
        folders = [folder for folder in folders if splits[folder] in (None, split)]

    def rank(folder: Path) -> tuple[int, bool, bool]:
        return counts[folder], folder in of_split, folder == root

    best = max(folders, key=rank)
    equal = [folder for folder in folders if rank(folder) == rank(best)]
    if len(equal) > 1 and counts[best]:
        shown = [folder.relative_to(root).as_posix() for folder in equal]
        raise SettingError(
            f"{root}: {shown} all have photos of the names in the annotations, such as "
            f"{next(name for name in names if _is_there(best, name))!r}; choose ",
            Setting("image_folder"),
        )
    return best


def _is_there(folder: Path, name: str) -> bool:
    if (folder / name).is_file():
        return True
    suffixes = () if has_photo_suffix(name) else PHOTO_SUFFIXES
    return any((folder / f"{name}{suffix}").is_file() for suffix in suffixes)


def folders_below(root: Path, depth: int = 1) -> list[Path]:
    """Folders below, in order; links are not followed."""
    if depth == 0:
        return []
    here = sorted(
        Path(entry.path)
        for entry in os.scandir(root)
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
    )
    return [folder for child in here for folder in (child, *folders_below(child, depth - 1))]
