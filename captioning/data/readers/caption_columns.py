"""Which columns of a table hold captions, by the names that data sets give them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from captioning.config.setting_error import Setting, SettingError

CAPTION_COLUMNS = ("captions", "caption", "sentences", "sentence", "texts", "text")
TURNS = ("conversations", "messages")  # of chats about a photo, as LLaVA and others have them
# Beside a caption they are no captions.
OTHER_COLUMNS = ("caption_text", "caption_str", "description", "comment")
# The captions of sets for image generators; of chats it is the question beside one of the answers.
PROMPT, ANSWERS = "prompt", ("completion", "response", "answer", "output", "chosen")
ADDRESSES = (
    "holds addresses of photos and no photos; download these first, for example by img2dataset, "
    "whose tar shards data=webdataset reads"
)
# A text of a list, as Python, JSON and NumPy write them; the last without commas.
_ITEM = re.compile(r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|None|null|nan)\s*(,?)""", re.DOTALL)
_LISTS = re.compile(r"(?:array\()?([\[({])\s*(?=['\"\])]|None|null|nan)")
_LIST_ENDS = re.compile(r"\s*[\])}](?:,\s*dtype=\w+)?\)?\s*")
_OBJECTS = re.compile(r"\s*(?:\[\s*)*\{\s*['\"]|\s*\[\s*\[\s*['\"]")
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
    if not present and not numbered and PROMPT in head and not set(ANSWERS) & set(head):
        present = [PROMPT]
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


def listed(text: str, where: str) -> list[str]:
    """The captions of a text: itself, or those of a list as Python, JSON, pandas or NumPy write it.

    In lists, and alone, may stand objects with a caption under a usual key, and sets may stand for
    lists. Another object is a caption itself.

    Raises:
        ValueError: it begins as a list and does not end as one.
    """
    begin = _LISTS.match(text := text.strip())
    if _OBJECTS.match(text) and (inside := _texts_inside(text)):
        return inside
    if begin is None:
        return [text]
    items, commas, place = [], 0, begin.end()
    while (item := _ITEM.match(text, place)) is not None:
        items.append(item[1])
        commas, place = commas + bool(item[2]), item.end()
    if _LIST_ENDS.fullmatch(text, place) and (commas or begin[1] == "["):
        return [_literal(item) for item in items if item[0] in "'\""]
    if begin[1] != "[":  # brackets stand in captions, too
        return [text]
    raise ValueError(
        f"{where}: begins as a list of captions and does not end as one ({text[place:][:20]!r} "
        f"after {len(items)}); was it cut off? Write it whole"
    )


def _texts_inside(text: str) -> list[str]:
    """The captions of objects, or of lists of lists; empty where another value stands there."""
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return _texts_of(read(text))
    return []


def _texts_of(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = next((value[key] for key in ("raw", *CAPTION_COLUMNS) if value.get(key)), None)
        return _texts_of(value)
    if not isinstance(value, list | tuple):
        return []
    found = [_texts_of(one) for one in value]
    return [text for texts in found for text in texts] if all(found) else []


def _literal(item: str) -> str:
    """A text in quotation marks; JSON alone escapes / and half pairs of surrogates."""
    value = ast.literal_eval(item.replace("\\/", "/").replace("\n", "\\n"))
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
