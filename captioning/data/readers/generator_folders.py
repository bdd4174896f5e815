"""Read folders for fine-tuning image generators, with the file names of their trainers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from captioning.config.setting_error import Setting, SettingError
from captioning.data.json_files import Record, as_record, parse_json
from captioning.data.line_files import read_text
from captioning.data.readers.split_words import Split

DEFAULT = "default_caption"  # ai-toolkit: of photos without a text of their own
MAX_REPEATS = 1000  # larger numbers are years and the like
_PROMPTS = ("sample", "concept", "filename")  # where OneTrainer takes captions from
_REPEATS = re.compile(r"([1-9]\d*)_(\S.*)")


class Repeats(NamedTuple):
    """Values that kohya's scripts read from a folder's name, such as ``10_sks dog``.

    Attributes:
        number: how often an epoch has each of its photos.
        words: the caption of photos without a text: trigger and class.
    """

    number: int
    words: str


def repeats_in(name: str) -> Repeats | None:
    """Parse the values in a folder's name; None for other names."""
    match = _REPEATS.fullmatch(name)
    if match is None or int(match[1]) > MAX_REPEATS:
        return None
    return Repeats(int(match[1]), match[2].strip())


def repeated_folders(folders: Iterable[Path]) -> dict[Path, Repeats]:
    """Return photo folders with repeats in their names; empty if the names only count them.

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
    """Return the default caption of a folder's photos: its own, or that of the nearest parent.

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
    """Return, by folder, the captions of kohya's folders in which no photo has a text file.

    Args:
        pairs: photos, and the files that could have their captions.
    """
    texts: dict[Path, int] = {}
    for photo, paths in pairs:
        texts[photo.parent] = texts.get(photo.parent, 0) + len(paths)
    repeated = repeated_folders(texts)
    return {path: said.words for path, said in repeated.items() if not texts[path]}


class Concept(NamedTuple):
    """A training folder of OneTrainer.

    Attributes:
        folder: folder of the photos.
        is_deep: whether those of folders below count, too.
        prompts: ``"sample"``: a text beside each photo has its captions; ``"filename"``: its name
            is one; or a file whose lines are captions of each photo.
        split: ``"val"`` of a concept for validation.
    """

    folder: Path
    is_deep: bool
    prompts: str | Path
    split: Split


def concepts_of(path: Path, root: Path) -> list[Concept]:
    """Return the enabled concepts of OneTrainer's ``concepts.json``.

    Args:
        path: the file.
        root: folder that paths of another machine are looked for in.

    Raises:
        ValueError: it is no such file, or a folder or file is not below ``root``.
    """
    values = parse_json(read_text(path), str(path))
    records = [as_record(one, f"{path}[{n}]") for n, one in enumerate(values)]
    return [_concept(one, root) for one in records if one.value.get("enabled", True)]


def are_concepts(value: Any) -> bool:
    """Whether a document is OneTrainer's list of concepts, by the first."""
    first = value[0] if isinstance(value, list) and value else None
    if not isinstance(first, dict):
        return False
    text = first.get("text")
    return isinstance(text, dict) and "prompt_source" in text and "path" in first


def _concept(record: Record, root: Path) -> Concept:
    text = as_record(record.get("text"), f"{record.where}: 'text'")
    source = text.text("prompt_source")
    if source not in _PROMPTS:
        raise text.invalid("prompt_source", f"one of {list(_PROMPTS)}")
    prompts: str | Path = source
    if source == "concept":
        prompts = _placed(text, "prompt_path", root, os.path.isfile)
    is_checked = record.value.get("type") == "VALIDATION" or record.value.get("validation_concept")
    return Concept(
        folder=_placed(record, "path", root, os.path.isdir),
        is_deep=bool(record.value.get("include_subdirectories")),
        prompts=prompts,
        split="val" if is_checked else "train",
    )


def _placed(record: Record, key: str, root: Path, is_there: Any) -> Path:
    """Return a path below the root, even if the folder was moved."""
    parts = [part for part in record.text(key).replace("\\", "/").split("/") if part != "."]
    for cut in range(len(parts)):
        end = [part for part in parts[cut:] if part]
        place = root.joinpath(*end)
        if end and ".." not in end and is_there(place):
            return place
    raise SettingError(
        record.where,
        f"{key!r}: {record.text(key)!r} is not below {root}",
        "move it there, or give a folder that holds it by ",
        Setting("folder"),
    )
