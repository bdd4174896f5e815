"""Find the photos that annotations name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from captioning.config.setting_error import Setting, SettingError
from captioning.data.photo_folder import PhotoFolder, photo_name
from captioning.data.readers.split_words import Split, split_of

_DEPTH = 3  # folders below that are looked into


def photo_folder(root: Path, names: Sequence[str], split: Split | None) -> Path:
    """Find the folder below ``root`` that holds most of the given photos.

    Where the path of such a folder says the split, folders of other splits do not count. Among
    equal folders the split's comes first, then ``root`` itself.

    Raises:
        ValueError: several folders have them; lists these.
    """
    names = list(_plain_names(names))
    folders = [root, *folders_below(root, _DEPTH)]
    splits = {folder: split_of(str(folder.relative_to(root))) for folder in folders}
    listed = {folder: PhotoFolder(folder=folder) for folder in folders}
    places = {folder: _found(photos, names) for folder, photos in listed.items()}
    if not any(places.values()) and any("/" in name for name in names):
        # of a set whose photos lie in other folders here
        names = [name if name.startswith("/") else f"/{name}" for name in names]
        places = {folder: _found(photos, names) for folder, photos in listed.items()}
    are_absolute = any(name.startswith("/") for name in names)
    counts = {folder: len(found) for folder, found in places.items()}
    of_split = [f for f in folders if split is not None and splits[f] == split]
    if any(counts[folder] for folder in of_split):
        folders = [folder for folder in folders if splits[folder] in (None, split)]

    def rank(folder: Path) -> tuple[int, int, bool, bool]:
        # where absolute paths are cut, the folder that leaves most of them
        kept = sum(name.count("/") for name in places[folder]) if are_absolute else 0
        return counts[folder], kept, folder in of_split, folder == root

    best = max(folders, key=rank)
    equal = [folder for folder in folders if rank(folder) == rank(best)]
    if len(equal) > 1 and counts[best]:
        shown = [folder.relative_to(root).as_posix() for folder in equal]
        raise SettingError(
            root,
            f"{shown} all have photos of the names in the annotations, such as {places[best][0]!r}",
            "choose ",
            Setting("image_folder"),
        )
    return best


def has_photos(root: Path, names: Sequence[str], split: Split | None, *, share: float) -> bool:
    """Whether at least a share of some names is of photos of a folder below ``root``."""
    folder = PhotoFolder(folder=photo_folder(root, names, split))
    return 0 < len(names) * share <= len(_found(folder, list(_plain_names(names))))


def _plain_names(names: Iterable[str]) -> Iterator[str]:
    """Normalise names as the readers do; invalid names are left to the readers."""
    for name in names:
        with suppress(ValueError):
            yield photo_name(name, "")


def _found(folder: PhotoFolder, names: Sequence[str]) -> list[str]:
    """Return names of the photos found in a folder."""
    below = folder.below(names)
    plain = (below.get(name, name) for name in names)
    return [name for name in plain if folder.find(name) is not None]


def folders_below(root: Path, depth: int = 1) -> list[Path]:
    """Yield subfolders in order, without following links."""
    if depth == 0:
        return []
    here = sorted(
        Path(entry.path)
        for entry in os.scandir(root)
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
    )
    return [folder for child in here for folder in (child, *folders_below(child, depth - 1))]
