"""Which columns of a table hold captions, by the names that data sets give them."""

from __future__ import annotations

import re
from collections.abc import Sequence

CAPTION_COLUMNS = ("captions", "caption", "sentences", "sentence", "texts", "text")
OTHER_COLUMNS = ("caption_text", "description", "comment")  # beside a caption they are no captions
_NUMBERED = re.compile(r"(caption|sentence|text|comment|description)[ _-]?\d+")


def usual_captions(names: Sequence[str], where: str) -> list[int]:
    """Places of the columns of captions: of one name, wherever it stands, and the same numbered.

    Args:
        names: of all columns, in any case.
        where: the file, for the message.

    Raises:
        ValueError: none has a usual name, or several could be meant; lists the columns.
    """
    head = [name.strip().lower() for name in names]
    numbered = {n: match[1] for n, name in enumerate(head) if (match := _NUMBERED.fullmatch(name))}
    present = [name for name in CAPTION_COLUMNS if name in head]
    if not present:
        words = set(numbered.values()) or OTHER_COLUMNS
        present = [name for name in OTHER_COLUMNS if name in head and name in words]
    if len(present) == 1:
        same = [place for place, name in enumerate(head) if name == present[0]]
        of_name = [place for place, word in numbered.items() if word == present[0].rstrip("s")]
        return sorted([*same, *of_name])
    if present:
        raise ValueError(
            f"{where}: {present} could be meant of the columns {list(names)}; choose "
            "caption_columns="
        )
    if not numbered:
        raise ValueError(
            f"{where}: none of the columns {list(names)} has a usual name of captions, such as "
            f"{list(CAPTION_COLUMNS[:2])}; rename it, or choose caption_columns="
        )
    return list(numbered)
