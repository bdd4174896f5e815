"""Words that say which split files, folders and rows belong to."""

from __future__ import annotations

import re
from typing import Literal, get_args

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
COLUMN = "split"  # of tables whose rows say it
# Words of file and folder names, without digits: captions_train2017.json.
SPLIT_WORDS: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training", "trainimages", "restval"),
    "val": ("validation", "valid", "val", "dev", "devimages"),
    "test": ("test", "testing", "testimages"),
}


def split_of(name: str) -> Split | None:
    """The split that words of a path say, if they say one."""
    words = set(re.split(r"[^a-z]+", name.lower()))
    found: list[Split] = [split for split in SPLITS if not words.isdisjoint(SPLIT_WORDS[split])]
    return found[0] if len(found) == 1 else None


def split_said(said: object, where: str) -> Split:
    """The split that a row says.

    Raises:
        ValueError: it says none.
    """
    split = split_of(said) if isinstance(said, str) else None
    if split is None:
        raise ValueError(
            f"{where}: the split {str(said)[:60]!r} is none of train, val (validation, valid, dev) "
            "and test; correct it, or give the column another name"
        )
    return split
