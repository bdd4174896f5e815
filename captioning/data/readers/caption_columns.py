"""Which columns of a table hold captions, by the names that data sets give them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from captioning.setting_error import Setting, SettingError

CAPTION_COLUMNS = ("captions", "caption", "sentences", "sentence", "texts", "text")
TURNS = ("conversations", "messages")  # of chats about a photo, as LLaVA and others have them
# Beside a caption they are no captions.
OTHER_COLUMNS = ("caption_text", "caption_str", "description", "comment")
ADDRESSES = (
    "holds addresses of photos and no photos; download these first, for example by img2dataset, "
    "whose tar shards data=webdataset reads"
)
_NUMBERED = re.compile(r"(caption|sentence|text|comment|description)[ _-]?\d+")


def has_addresses(names: Iterable[str]) -> bool:
    """Whether one of the columns, or of a first row's cells, is of addresses."""
    return any(re.match(r"(image[_ ]?)?urls?$|https?://", name.strip().lower()) for name in names)


def found_captions(names: Sequence[str], where: str) -> list[int]:
    """Places of the columns of captions: of one name, wherever it stands, and the same numbered.

    Args:
        names: of all columns, in any case.
        where: the file, for the message.

    Returns:
        Nothing where none has a usual name.

    Raises:
        ValueError: several could be meant; lists the columns.
    """
    head = [name.strip().lower() for name in names]
    numbered = _numbered(head)
    present = [name for name in CAPTION_COLUMNS if name in head]
    if not present:
        words = set(numbered.values()) or OTHER_COLUMNS
        present = [name for name in OTHER_COLUMNS if name in head and name in words]
    if len(present) > 1:
        raise SettingError(
            f"{where}: {present} could be meant of the columns {list(names)}; choose ",
            Setting("caption_columns"),
        )
    if not present:
        return list(numbered)
    same = [place for place, name in enumerate(head) if name == present[0]]
    return sorted([*same, *numbered_captions(names, present[0])])


def numbered_captions(names: Sequence[str], name: str) -> list[int]:
    """Places of ``caption_1``, ``caption_2`` and so on for ``caption`` or ``captions``."""
    head = [other.strip().lower() for other in names]
    return [place for place, word in _numbered(head).items() if word == name.rstrip("s")]


def _numbered(head: Sequence[str]) -> dict[int, str]:
    return {n: match[1] for n, name in enumerate(head) if (match := _NUMBERED.fullmatch(name))}


def usual_captions(names: Sequence[str], where: str) -> list[int]:
    """`found_captions`, of which there must be some.

    Raises:
        ValueError: none has a usual name, or several could be meant; lists the columns.
    """
    found = found_captions(names, where)
    if not found:
        raise SettingError(
            f"{where}: none of the columns {list(names)} has a usual name of captions, such as "
            f"{list(CAPTION_COLUMNS[:2])}; rename it, or choose ",
            Setting("caption_columns"),
        )
    return found
