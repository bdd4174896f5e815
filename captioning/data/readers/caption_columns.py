"""Find the caption columns of a table by their usual names."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, Literal

from captioning.config.setting_error import Setting, SettingError

log = logging.getLogger(__name__)

# What is one caption: of text files beside photos a line or file, of cells of tables the others.
CaptionPer = Literal["line", "file", "cell", "bar", "semicolon"]
_SEPARATORS: dict[str, str] = {"bar": "|", "line": "\n", "semicolon": ";"}
_NUM_LOOKED_AT = 500  # cells that decide whether captions are joined
_LONGEST = 40  # words of a line that is a caption, and no paragraph
CAPTION_COLUMNS = ("captions", "caption", "sentences", "sentence", "texts", "text")
TURNS = ("conversations", "messages")  # of chats about a photo, as LLaVA and others have them
# Beside a caption they are no captions.
OTHER_COLUMNS = (
    "caption_text", "caption_str", "description", "comment", "alt_text", "alttext", "alt", "raw",
    "report", "paragraph", "utterance", "narrative",
)  # fmt: skip
FILE_COLUMNS = (
    "file_name", "filename", "image_name", "image_path", "image_file", "filepath", "file_path",
    "file", "image", "img", "photo", "path", "image_file_name", "image_filename", "img_path",
    "img_name",
)  # fmt: skip
# Where there is none of these in small letters.
_OTHER_FILE_COLUMNS = (
    *FILE_COLUMNS, "img_file", "img_filename", "img_fn", "fname", "picture", "local_path",
    "relative_path", "img_local_path", "image_local_path", "media_path",
)  # fmt: skip
# Names of photos where nothing else is, and photos are called so.
ID_COLUMNS = (
    "image_id", "img_id", "imageid", "imgid", "photo_id", "id", "key", "__key__", "uid",
    "example_id", "image_key",
)  # fmt: skip
# The captions of sets for image generators; of chats it is the question beside one of the answers.
PROMPT, ANSWERS = "prompt", ("completion", "response", "answer", "output", "chosen")
ADDRESSES = (  # problem and remedy
    "holds addresses of photos and no photos",
    "download these first, for example by img2dataset, whose tar shards data=webdataset reads",
)
# A text of a list, as Python, JSON and NumPy write them; the last without commas.
_ITEM = re.compile(r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|None|null|nan)\s*(,?)""", re.DOTALL)
_LISTS = re.compile(r"(?:array\()?([\[({])\s*(?=['\"\])]|None|null|nan)")
_LIST_ENDS = re.compile(r"\s*[\])}](?:,\s*dtype=\w+)?\)?\s*")
_OBJECTS = re.compile(r"\s*(?:\[\s*)*\{\s*['\"]|\s*\[\s*\[\s*['\"]")
_BLANK_LINE = re.compile(r"\S[^\S\n]*\n[^\S\n]*\n\s*\S")
_CAPTION = re.compile(r"captions?(?![a-z])")  # in names such as caption_en and vlm_caption
_ABOUT = re.compile(  # which says something of captions
    r"(?:^|[^a-z])(?:ids?|idx|index|tokens?|len|length|count|num|number|n|source|model|lang|language"
    r"|scores?|urls?|type|hash|embeddings?|file|path|split|by|author|times?|date|start|end|status"
    r"|confidence|rating|quality|timed|probs?|is|has|negative|rejected)(?:$|[^a-z])"
)
_NUMBERED = re.compile(r"(caption|sentence|text|comment|description)[ _#/.-]?\d+")


def has_addresses(names: Iterable[str]) -> bool:
    """Whether one of the columns, or of a first row's cells, is of addresses."""
    return any(re.match(r"(image[_ ]?)?urls?$|https?://", name.strip().lower()) for name in names)


@lru_cache
def file_columns(names: tuple[str, ...]) -> list[str]:
    """Return the usual names of file columns among the given names, most usual first."""
    usual = [name for one in FILE_COLUMNS for name in names if name == one]
    wanted = {_squeezed(name) for name in _OTHER_FILE_COLUMNS}
    return usual or [name for name in names if _squeezed(name) in wanted]


def are_of_one_photo(names: Iterable[object]) -> bool:
    """Whether several names are of one photo, but for folders and suffix."""
    stems = {PurePosixPath(str(name).replace("\\", "/")).stem for name in names}
    return len(stems) == 1 and "" not in stems


def _squeezed(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def found_captions(names: Sequence[str], where: str) -> list[int]:
    """Return positions of caption columns: a known name, or the same name with numbers.

    Args:
        names: names of all columns, in any case.
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
        words = set(numbered.values()) or {*OTHER_COLUMNS, *filter(_is_caption, head)}
        present = [name for name in dict.fromkeys(head) if name in words]
    if not present and sorted(head) == ["filepath", "title"]:  # open_clip's
        present = ["title"]
    if not present and not numbered and PROMPT in head and not set(ANSWERS) & set(head):
        present = [PROMPT]
    if len(present) > 1:
        problem = f"{present} could be meant of the columns {list(names)}"
        raise SettingError(where, problem, "choose ", Setting("caption_columns"))
    if not present:
        return list(numbered)
    same = [place for place, name in enumerate(head) if name == present[0]]
    return sorted([*same, *numbered_captions(names, present[0])])


def _is_caption(name: str) -> bool:
    """Whether a name such as ``caption_en`` is of captions, and not of something about them."""
    return bool(_CAPTION.search(name)) and not _ABOUT.search(name)


def numbered_captions(names: Sequence[str], name: str) -> list[int]:
    """Return positions of ``caption_1``, ``caption_2``, ... for ``caption`` or ``captions``."""
    head = [other.strip().lower() for other in names]
    return [place for place, word in _numbered(head).items() if word == name.rstrip("s")]


def _numbered(head: Sequence[str]) -> dict[int, str]:
    return {n: match[1] for n, name in enumerate(head) if (match := _NUMBERED.fullmatch(name))}


def usual_captions(names: Sequence[str], where: str) -> list[int]:
    """Return `found_captions`; raise an error if there are none.

    Raises:
        ValueError: none has a usual name, or several could be meant; lists the columns.
    """
    found = found_captions(names, where)
    if not found:
        raise SettingError(
            where,
            f"none of the columns {list(names)} has a usual name of captions, such as "
            f"{list(CAPTION_COLUMNS[:2])}",
            "rename it, or choose ",
            Setting("caption_columns"),
        )
    return found


def listed(text: str, where: str) -> list[str]:
    """Parse a cell: a text, or a list of captions written by Python, JSON, pandas or NumPy.

    Lists may hold objects with a caption under a usual key, a text may be such an object, and sets
    may stand for lists. Another object is a caption itself.

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
    raise SettingError(
        where,
        f"begins as a list of captions and does not end as one ({text[place:][:20]!r} after "
        f"{len(items)})",
        "was it cut off? Write it whole",
    )


def _texts_inside(text: str) -> list[str]:
    """Return captions in objects or nested lists; empty for other values."""
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
    """Parse a quoted text; only JSON escapes / and surrogate halves."""
    value = ast.literal_eval(item.replace("\\/", "/").replace("\n", "\\n"))
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def separator_of(texts: Iterable[object], per: CaptionPer | None, where: str) -> str:
    """Return the separator of captions joined in one cell; empty: one caption per cell.

    Args:
        texts: the cells; values other than text are skipped.
        per: ``"bar"``, ``"semicolon"`` or ``"line"`` separates captions; ``"cell"``: a cell is one
            caption; None: the first cells decide if they are clear, and a message says so.
        where: the file, for the message.
    """
    if per is not None:
        return _SEPARATORS.get(per, "")
    given = (one for one in islice(texts, _NUM_LOOKED_AT) if isinstance(one, str) and one.strip())
    cells = [one for one in given if not (_LISTS.match(one) or _OBJECTS.match(one))]
    for name, separator in _SEPARATORS.items():
        pieces = [pieces_of_cell(cell, separator) for cell in cells]
        joined = [own for own in pieces if len(own) > 1]
        if not joined or 2 * len(joined) < len(cells):
            continue
        are_apart = separator == "\n" and any(map(_BLANK_LINE.search, cells))  # of paragraphs
        is_usual = 5 * len(joined) >= 4 * len(cells) >= 12
        if is_usual and not are_apart and _ARE_CAPTIONS[name](joined):
            _say(
                f"{where}: several captions stand in one cell, joined by {separator!r}: each is "
                "read; the setting caption_per=cell takes a cell as one"
            )
            return separator
        _say(
            f"{where}: {len(joined)} of the first {len(cells)} captions have {separator!r} in "
            f"them, and each is read as one; the setting caption_per={name} splits them, "
            "caption_per=cell says that they are right"
        )
        break
    return ""


def pieces_of_cell(text: str, separator: str) -> list[str]:
    """Split a cell into captions; without a separator the cell is one caption."""
    if not separator:
        return [text]
    return [one.strip() for one in text.split(separator) if one.strip()] or [text]


@cache  # once for all parts of a set
def _say(message: str) -> None:
    log.warning(message)


def _are_sentences(joined: Sequence[Sequence[str]]) -> bool:
    """Whether nearly all pieces have several words, and the median piece at least three."""
    numbers = sorted(_num_words(one) for pieces in joined for one in pieces)
    return numbers[len(numbers) // 20] > 1 and numbers[len(numbers) // 2] > 2


def _num_words(text: str) -> int:
    return len(text.split()) + sum(ord(character) > _CJK for character in text) // 2


_CJK = 0x2E80  # from here on scripts that have no spaces


def _are_as_many(joined: Sequence[Sequence[str]], least: int) -> bool:
    numbers = [len(pieces) for pieces in joined]
    usual = max(set(numbers), key=numbers.count)
    return usual >= least and 10 * numbers.count(usual) >= 9 * len(numbers)


def _are_joined_by_semicolons(joined: Sequence[Sequence[str]]) -> bool:
    """Whether pieces begin or end as sentences do, or are as many in each cell."""
    later = [one for pieces in joined for one in pieces[1:]]
    ended = sum(pieces[0][-1] in ".!?\u3002" for pieces in joined)
    begun = sum(one[0].isupper() or one[0].isdigit() for one in later)
    whole = 10 * ended >= 9 * len(joined) or 10 * begun >= 9 * len(later)
    return _are_sentences(joined) and (whole or _are_as_many(joined, 3))


def _are_joined_by_lines(joined: Sequence[Sequence[str]]) -> bool:
    """Whether lines are as many in each cell, and none is a paragraph."""
    longest = max(_num_words(one) for pieces in joined for one in pieces)
    return _are_sentences(joined) and _are_as_many(joined, 2) and longest <= _LONGEST


_ARE_CAPTIONS = {
    "bar": _are_sentences,
    "line": _are_joined_by_lines,
    "semicolon": _are_joined_by_semicolons,
}
