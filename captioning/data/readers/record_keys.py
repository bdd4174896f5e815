"""Which keys of a JSON object name its photo and hold its captions, by the names in use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from captioning.data.json_files import Record
from captioning.data.photo_folder import has_photo_suffix, photo_name
from captioning.data.readers.caption_columns import TURNS, found_captions, numbered_captions
from captioning.data.readers.table import FILE_COLUMNS
from captioning.setting_error import Setting, SettingError

FILES = "images"  # of chats: a list of one
_LIST = re.compile(r'\[\s*|\{[^\[{]*"data"\s*:\s*\[\s*')  # up to the first of a list's objects
_FIRST_KEY = re.compile(r'\{\s*"([^"\\]+)"\s*:')
_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant"}


def file_name_of(record: Record, key: str | None = None) -> str:
    """The name of a record's photo, made plain.

    Args:
        record: a line.
        key: that holds it; None: ``image``, or the one other with a usual name.

    Raises:
        ValueError: no such key, several that could be meant, or no name of a file.
    """
    key = _file_key(record) if key is None else key
    if key != FILES:
        return photo_name(record.text(key), record.where)
    names = record.items(FILES)
    if len(names) != 1 or not isinstance(names[0], str):
        raise record.invalid(FILES, "a list of one file name")
    return photo_name(names[0], record.where)


def _file_key(record: Record) -> str:
    if "image" in record:
        return "image"
    present = [name for name in FILE_COLUMNS if name in record]
    if not present and FILES not in record:
        return "image"  # whose getter says that it is missing
    if len(present) > 1:
        raise SettingError(
            f"{record.where}: {present} could be meant of the keys {list(record.value)}; choose ",
            Setting("file_column"),
        )
    return present[0] if present else FILES


class CaptionKeys:
    """Which keys hold captions, alike in all lines of a file.

    Of the usual keys a line has one. It is read with the same numbered, such as ``caption_2``.
    Where the first lines have none of them, the one key with another usual name is; such a name
    beside the usual ones may be anything.

    Args:
        usual: names.
        columns: the keys that are read instead; None: the usual ones.
    """

    def __init__(self, usual: Sequence[str], columns: str | Sequence[str] | None = None) -> None:
        self._columns = [columns] if isinstance(columns, str) else columns
        self.usual = usual if self._columns is None else self._columns
        self._has_usual = False
        self._last: tuple[str, tuple[str, ...]] = ("", ())
        self._found: list[str] = []

    def __call__(self, record: Record) -> list[str]:
        """Those that a line has; none where it has no caption.

        Raises:
            ValueError: several that could be meant.
        """
        if self._columns is not None:
            return [key for key in self._columns if key in record]
        present = [key for key in self.usual if key in record]
        if len(present) > 1:
            raise SettingError(
                f"{record.where}: needs exactly one of the keys {list(self.usual)}: has {present}; "
                "choose ",
                Setting("caption_columns"),
            )
        if present:
            self._has_usual = True
            numbered = self._numbered(present[0], tuple(record.value))
            return [*present, *(key for key in numbered if key in record)]
        if self._has_usual:
            return []
        names = [name for name in record.value if name in record]
        return [names[place] for place in found_captions(names, record.where)]

    def _numbered(self, key: str, names: tuple[str, ...]) -> list[str]:
        """Names of the numbered keys, looked for once where lines have the same keys."""
        if (key, names) != self._last:
            self._last = key, names
            self._found = [names[place] for place in numbered_captions(names, key)]
        return self._found


def chat_captions(record: Record) -> list[tuple[str, str]] | None:
    """The answer of a chat of one question and one answer, with its place; None: it is no chat.

    Raises:
        ValueError: another chat, whose answers are no captions.
    """
    key = next((key for key in TURNS if key in record), None)
    if key is None:
        return None
    turns = record.items(key)
    answer = answer_of(turns)
    if answer is None:
        raise SettingError(
            f"{record.where}: {key!r} must be one question and one answer, which is the caption: "
            f"got {len(turns)} turns; leave such lines out by ",
            Setting("bad_captions", "drop"),
        )
    return [(answer, f"{record.where}: {key!r}")]


def answer_of(turns: Sequence[Any]) -> str | None:
    """The answer of a chat of one question and one answer; None: it is another."""
    pair = question_and_answer(turns)
    return None if pair is None else pair[1]


def question_and_answer(turns: Sequence[Any]) -> tuple[str | None, str | None] | None:
    """Both turns of such a chat; None: it is another."""
    said = [_turn(turn) if isinstance(turn, dict) else ("", None) for turn in turns]
    said = [turn for turn in said if turn[0] != "system"]
    is_one = [role for role, _ in said] == ["user", "assistant"]
    return (said[0][1], said[1][1]) if is_one else None


def _turn(turn: Mapping[str, Any]) -> tuple[str, str | None]:
    """Role and text of a turn."""
    role, text = (turn.get(a) or turn.get(b) for a, b in (("from", "role"), ("value", "content")))
    if isinstance(text, list):  # parts, of which some may be photos
        parts = [part.get("text") for part in text if isinstance(part, dict)]
        text = " ".join(part for part in parts if isinstance(part, str))
    return _ROLES.get(str(role), str(role)), text if isinstance(text, str) else None


def by_photo(values: Mapping[str, Any], where: str) -> Iterator[Record]:
    """The lines that an object with names of photos as keys stands for.

    Under a name is a caption, a list of captions, or an object with other keys of a line.
    """
    for name, value in values.items():
        others = value if isinstance(value, dict) else {"captions": value}
        if isinstance(value, str):
            others = {"caption": value}
        yield Record({"image": name} | others, f"{where}: {name!r}")


def no_captions(record: Record) -> ValueError:
    """The error that no line has captions; names the keys of the first."""
    return SettingError(
        f"{record.where}: none of the keys {list(record.value)} has a usual name of captions, such "
        "as 'captions' or 'caption', here and below; rename it, or choose ",
        Setting("caption_columns"),
    )


def names_photo_and_caption(value: Mapping[str, Any]) -> bool:
    """Whether an object is like a line of captions, by the names of its keys."""
    record = Record(dict.fromkeys(value, True), "")
    try:
        has_captions = bool(CaptionKeys(())(record))
    except ValueError:  # several
        has_captions = True
    return (has_captions or any(key in value for key in TURNS)) and any(
        key in value for key in (*FILE_COLUMNS, FILES)
    )


def first_object(path: Path, head: bytes, *, is_asked_for: bool) -> dict[str, Any]:
    """The first object of JSON Lines or of JSON with a list or with names of photos as keys.

    It is empty where the head holds none. The latter count where the file is asked for, or its name
    says that it has captions.
    """
    text = head.decode("utf-8-sig", errors="ignore").lstrip()
    if path.suffix.lower() == ".json":
        begin, name = _LIST.match(text), _FIRST_KEY.match(text)
        if begin is None:  # labels of photos have this form, too
            is_photo = name is not None and has_photo_suffix(name[1])
            is_meant = is_asked_for or "caption" in path.stem
            return {"image": True, "caption": True} if is_photo and is_meant else {}
        text = text[begin.end() :]
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
