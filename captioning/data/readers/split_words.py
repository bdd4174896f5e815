"""Recognise words for splits (train, val, test) in names of files, folders and columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from captioning.config.setting_error import SettingError

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
COLUMN = "split"  # of tables whose rows say it
# Words of file and folder names, without digits: captions_train2017.json.
SPLIT_WORDS: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training", "trainimages", "restval"),
    "val": ("validation", "valid", "val", "dev", "devimages"),
    "test": ("test", "testing", "testimages"),
}


_WORDS = {word for words in SPLIT_WORDS.values() for word in words}


def is_split(value: object) -> bool:
    """Whether a value is a word of a split and nothing else."""
    return isinstance(value, str) and value.strip().lower() in _WORDS


def split_key(rows: Sequence[Mapping[str, Any]], where: str) -> str | None:
    """Find the key with the rows' splits: `COLUMN` in any case, or a key with only split words.

    Args:
        rows: rows of a file.
        where: the file.

    Returns:
        None: no key says them, or all would be of one split.

    Raises:
        ValueError: two other keys say different ones.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    named = [name for name in names if name.strip().lower() == COLUMN]
    if named or not rows:
        return named[0] if named else None
    said = {
        name: [str(row[name]).strip().lower() for row in rows]
        for name in rows[0]
        if all(is_split(row.get(name)) for row in rows)
    }
    return chosen_key({name: values for name, values in said.items() if len({*values}) > 1}, where)


def chosen_key(said: Mapping[str, Sequence[str]], where: str) -> str | None:
    """Return the first of the columns that give splits, by their words; None without any.

    Raises:
        ValueError: two of them differ.
    """
    if len({tuple(split_of(word) for word in words) for words in said.values()}) > 1:
        problem = f"the columns {list(said)} say different splits"
        raise SettingError(where, problem, f"call the one that counts {COLUMN!r}")
    return next(iter(said), None)


def split_of(name: str) -> Split | None:
    """Return the split that a path names, or None."""
    words = set(re.split(r"[^a-z]+", name.lower()))
    found: list[Split] = [split for split in SPLITS if not words.isdisjoint(SPLIT_WORDS[split])]
    return found[0] if len(found) == 1 else None


def split_said(said: object, where: str) -> Split:
    """Return the split that a row names.

    Raises:
        ValueError: it says none.
    """
    split = split_of(said) if isinstance(said, str) else None
    if split is None:
        raise SettingError(
            where,
            f"the split {str(said)[:60]!r} is none of train, val (validation, valid, dev) and test",
            "correct it, or give the column another name",
        )
    return split
