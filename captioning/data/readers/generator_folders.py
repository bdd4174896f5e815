"""Folders from which image generators are fine-tuned, as their trainers name files in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

DEFAULT = "default_caption"  # ai-toolkit: of photos without a text of their own
MAX_REPEATS = 1000  # larger numbers are years and the like
_REPEATS = re.compile(r"([1-9]\d*)_(\S.*)")


class Repeats(NamedTuple):
    """What kohya's scripts read from the name of a folder, such as ``10_sks dog``.

    Attributes:
        number: how often an epoch has each of its photos.
        words: the caption of photos without a text: trigger and class.
    """

    number: int
    words: str


def repeats_in(name: str) -> Repeats | None:
    """What a folder's name says; None: it is another name."""
    match = _REPEATS.fullmatch(name)
    if match is None or int(match[1]) > MAX_REPEATS:
        return None
    return Repeats(int(match[1]), match[2].strip())


def repeated_folders(folders: Iterable[Path]) -> dict[Path, Repeats]:
    """Folders with repeats, of those that hold photos; none where names merely count them.

    Two and more folders whose numbers follow one another, such as ``1_cats`` and ``2_dogs``, are
    counted.
    """
    found = {path: said for path in folders if (said := repeats_in(path.name)) is not None}
    numbers = sorted(said.number for said in found.values())
    is_count = len(numbers) > 1 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return {} if is_count else found


def default_texts(
    place: Path, root: Path, texts: Mapping[Path, Mapping[str, list[Path]]]
) -> list[Path]:
    """The default caption for photos of a folder: its own, or the nearest of those above.

    Args:
        place: the folder.
        root: topmost folder.
        texts: text files by folder and by name without suffix.
    """
    for folder in (place, *place.parents):
        found = [path for path in texts.get(folder, {}).get(DEFAULT, ()) if path.suffix == ".txt"]
        if found or folder == root:
            return found
    return []


def folder_captions(pairs: Iterable[tuple[Path, Sequence[Path]]]) -> dict[Path, str]:
    """Captions of kohya's folders in which no photo has a text, by folder.

    Args:
        pairs: photos, and the files that could have their captions.
    """
    texts: dict[Path, int] = {}
    for photo, paths in pairs:
        texts[photo.parent] = texts.get(photo.parent, 0) + len(paths)
    repeated = repeated_folders(texts)
    return {path: said.words for path, said in repeated.items() if not texts[path]}
