"""Find the keys of a JSON object that name its photo and hold its captions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from captioning.config.setting_error import Setting, SettingError
from captioning.data.json_files import Record, checked_text
from captioning.data.photo_folder import photo_name
from captioning.data.readers.caption_columns import (
    TURNS,
    are_of_one_photo,
    file_columns,
    found_captions,
    listed,
    numbered_captions,
)

FILES = "images"  # of chats: a list of one
_PATHS = ("path", "file_name", "filename", "filepath", "image", "image_url", "url", "name")
_TEXTS = ("raw", "caption", "text", "sentence", "value", "content", "label")  # in objects
_IN_TEXT = re.compile(r"<img>([^<>]+)</img>")  # a photo in a question, as Qwen has it
# Answers beside the question that is asked, each text or turns.
ANSWERS = {"completion": ("prompt",), "response": ("query", "prompt"), "output": ("instruction",)}
_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant"}


def value_at(record: Record, key: str) -> Any:
    """Return the value under a key or a dotted path of keys; None if missing."""
    value = record.value.get(key)
    if value is not None or "." not in key:
        return value
    value = record.value
    for part in key.split("."):
        if isinstance(value, list):
            value = [one.get(part) for one in value if isinstance(one, dict)]
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


def file_name_of(record: Record, key: str | None = None) -> str:
    """Return the normalised name of a record's photo.

    Args:
        record: a line.
        key: key of the photo; None: ``image``, or the one other with a usual name, or the photo of
            a chat.

    Raises:
        ValueError: no such key, several that could be meant, or no name of a file.
    """
    name = stated_name(record, key)
    if name is not None:
        return photo_name(name, record.where)
    key = key or _file_key(record)
    record.get(key.partition(".")[0])  # says that it is missing
    raise record.invalid(key.partition(".")[0], "a file name or a list of one file name")


def has_photo(record: Record, key: str | None = None) -> bool:
    """Whether a record has a value under the key of its photo's name."""
    return value_at(record, key or _file_key(record)) not in (None, "", []) or bool(
        stated_name(record, key)
    )


def stated_name(record: Record, key: str | None = None) -> str | None:
    """Return the name of a record's photo as written; None if there is not exactly one."""
    value = value_at(record, key or _file_key(record))
    if value in (None, "", []) and key is None:
        return _photo_in_chat(record)
    return _name_in(value)


def _name_in(value: Any) -> str | None:
    """Return a file name given as text or number, or as the only item of a list or object."""
    if isinstance(value, list):
        return _name_in(value[0]) if len(value) == 1 else None
    if isinstance(value, dict):
        return next((name for key in _PATHS if (name := _name_in(value.get(key)))), None)
    return value if isinstance(value, str) else number_name(value)


def number_name(value: Any) -> str | None:
    """Return the photo name that a number stands for (also as a float); None for other values."""
    is_whole = type(value) is int or (isinstance(value, float) and value.is_integer())
    return str(int(value)) if is_whole else None


def _photo_in_chat(record: Record) -> str | None:
    """Return the only photo named in a chat, in its own part or in the question."""
    turns = [turn for key in (*TURNS, "prompt", "query") for turn in _listed(record.value.get(key))]
    texts = [
        turn.get("content") or turn.get("value") if isinstance(turn, dict) else turn
        for turn in turns
    ]
    parts = [part for text in texts for part in _listed(text)]
    names = [_name_in(part) for part in parts if isinstance(part, dict)]
    names += [
        name.strip() for part in parts if isinstance(part, str) for name in _IN_TEXT.findall(part)
    ]
    found = list(dict.fromkeys(name for name in names if name))
    return found[0] if len(found) == 1 else None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _file_key(record: Record) -> str:
    if "image" in record:
        return "image"
    present = file_columns(tuple(record.value))
    if not present and FILES not in record:
        return "image"  # whose getter says that it is missing
    if len(present) > 1 and not are_of_one_photo(_name_in(record.value[key]) for key in present):
        problem = f"{present} could be meant of the keys {list(record.value)}"
        raise SettingError(record.where, problem, "choose ", Setting("file_column"))
    return present[0] if present else FILES


class CaptionKeys:
    """The keys that hold captions, equal for all lines of a file.

    A line has one of the usual keys, or a list of captions and beside it the first of them. It is
    read with the same numbered, such as ``caption_2``. Where the first lines have none of them, the
    one key with another usual name is; such a name beside the usual ones may be anything.

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
        """Return the caption keys of a line; empty if it has no caption.

        Raises:
            ValueError: several that could be meant.
        """
        if self._columns is not None:
            return [key for key in self._columns if value_at(record, key) is not None]
        present = [key for key in self.usual if key in record]
        if present == ["captions", "caption"] and _has_first(record):
            present = ["captions"]
        if len(present) > 1:
            problem = f"needs exactly one of the keys {list(self.usual)}: has {present}"
            raise SettingError(record.where, problem, "choose ", Setting("caption_columns"))
        if present:
            self._has_usual = True
            numbered = self._numbered(present[0], tuple(record.value))
            return [*present, *(key for key in numbered if key in record)]
        if self._has_usual:
            return []
        names = [name for name in record.value if name in record]
        return [names[place] for place in found_captions(names, record.where)]

    def _numbered(self, key: str, names: tuple[str, ...]) -> list[str]:
        """Return the numbered keys; lines with equal keys are looked up once."""
        if (key, names) != self._last:
            self._last = key, names
            self._found = [names[place] for place in numbered_captions(names, key)]
        return self._found


def _has_first(record: Record) -> bool:
    """Whether ``caption`` is the first of ``captions``, as in JSON of ``captioning caption``."""
    captions, first = record.value["captions"], record.value["caption"]
    if not isinstance(captions, list) or not captions:
        return False
    own = captions[0].get("caption") if isinstance(captions[0], dict) else captions[0]
    return isinstance(first, str) and own == first


def texts_of(value: Any, where: str) -> list[str]:
    """Return the captions of a value: a text, a list as text, or an object with one text.

    Raises:
        TypeError: it is none of these.
        ValueError: an object with several texts, or a list that was cut off.
    """
    if isinstance(value, str):
        return listed(checked_text(value, where), where)
    if not isinstance(value, dict):
        raise TypeError(where)
    if list(value) == ["text"] and isinstance(value["text"], list):  # of Label Studio
        return [text for one in value["text"] for text in texts_of(one, where)]
    present = [key for key in _TEXTS if isinstance(value.get(key), str)]
    texts = [key for key, one in value.items() if isinstance(one, str)]
    if len(texts) != 1 and not present:
        place, _, key = where.rpartition(": ")
        key = key.partition("[")[0].strip("'")
        problem = f"{key!r} holds an object of {list(value)}"
        raise SettingError(
            place, problem, "choose ", Setting("caption_columns", f"{key}.{(texts or ['NAME'])[0]}")
        )
    return [value[(present or texts)[0]]]


def chat_captions(record: Record) -> list[tuple[str, str]] | None:
    """Return a chat's single answer with its location; None if the value is not a chat.

    Raises:
        ValueError: another chat, whose answers are not captions.
    """
    for key, asked in ANSWERS.items():
        if (
            key in record
            and any(name in record for name in asked)
            and not record.value.get("history")
        ):
            turns = [
                t for name in (*asked, key) for t in _turns(record.value.get(name), name == key)
            ]
            break
    else:
        key = next((key for key in TURNS if key in record), "")
        turns = record.items(key) if key else []
    if not key:
        return None
    answer = answer_of(turns)
    if answer is None:
        raise SettingError(
            record.where,
            f"{key!r} must be one question and one answer, which is the caption: got "
            f"{len(turns)} turns",
            "leave such lines out by ",
            Setting("bad_captions", "drop"),
        )
    return [(answer, f"{record.where}: {key!r}")]


def _turns(value: Any, is_answer: bool) -> list[Any]:
    """Return the turns of a question or answer, which may be a plain text."""
    role = "assistant" if is_answer else "user"
    return [{"role": role, "content": value}] if isinstance(value, str) else _listed(value)


def answer_of(turns: Sequence[Any]) -> str | None:
    """Return the answer of a chat with one question and one answer; None for other chats."""
    pair = question_and_answer(turns)
    return None if pair is None else pair[1]


def question_and_answer(turns: Sequence[Any]) -> tuple[str | None, str | None] | None:
    """Return both turns of a chat with one question and one answer; None for other chats."""
    said = [_turn(turn) if isinstance(turn, dict) else ("", None) for turn in turns]
    said = [turn for turn in said if turn[0] != "system"]
    is_one = [role for role, _ in said] == ["user", "assistant"]
    return (said[0][1], said[1][1]) if is_one else None


def _turn(turn: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return role and text of a turn."""
    role, text = (turn.get(a) or turn.get(b) for a, b in (("from", "role"), ("value", "content")))
    if isinstance(text, list):  # parts, of which some may be photos
        parts = [part.get("text") for part in text if isinstance(part, dict)]
        text = " ".join(part for part in parts if isinstance(part, str))
    return _ROLES.get(str(role), str(role)), text if isinstance(text, str) else None


def no_captions(record: Record) -> SettingError:
    """Return the error that no line has captions; it lists the keys of the first line."""
    return SettingError(
        record.where,
        f"none of the keys {list(record.value)} has a usual name of captions, such as "
        "'captions' or 'caption', here and below",
        "rename it, or choose ",
        Setting("caption_columns"),
    )


def no_photo(record: Record) -> SettingError:
    """Return the error that no object names a photo; it lists the keys of the first."""
    return SettingError(
        record.where,
        f"none of the keys {list(record.value)} has a usual name of photos, such as "
        "'image' or 'file_name', or is one that photos there are called by",
        "choose ",
        Setting("file_column"),
    )


def names_photo_and_caption(
    record: Record, file_column: str | None = None, columns: str | Sequence[str] | None = None
) -> bool:
    """Whether an object is like a line of captions, by its keys."""
    if file_column is None:
        is_named = file_columns(tuple(record.value)) or FILES in record or _photo_in_chat(record)
    else:
        is_named = value_at(record, file_column) is not None
    try:
        has_captions = bool(CaptionKeys((), columns)(record))
    except ValueError:  # several
        has_captions = True
    is_chat = any(key in record for key in (*TURNS, *ANSWERS)) and columns is None
    return bool(is_named) and (has_captions or is_chat)
