"""Scripts without spaces between words: each character counts as a word.

These are Chinese, Japanese, Thai, Lao, Khmer and Burmese; and Korean, whose particles are attached
to words, and whose spaces the vocabulary encodes with a mark. Combining marks belong to their
character.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from functools import cache

log = logging.getLogger(__name__)

MARKS = (
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u1056-\u1059"
    "\u17b4-\u17d3\u3099\u309a"
)
# Thai and Lao vowels before or after a character are characters of their own.
_LETTERS = (
    "\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u0eb2\u0eb3\u0ebd\u0ec0-\u0ec6\u0edc-\u0edf"
    "\u1000-\u102a\u1780-\u17b3\u1100-\u11ff\u3005-\u3007\u3041-\u3096\u309d-\u30fa\u30fc-\u30ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_SIGNS = "\u3001-\u3003\u3008-\u3011\u3014-\u301f\u30fb\uff01-\uff0f\uff1a-\uff20\uff3b-\uff65"
START = "\u2581"  # before a Korean character that begins a word behind another one
_HANGUL = "\u1100-\u11ff\uac00-\ud7a3"
_GAP = re.compile(rf"(?<=[{_HANGUL}])\s+(?=[{_HANGUL}])")
_LETTER = re.compile(f"({START}?[{_LETTERS}][{MARKS}]*)")
_SIGN = re.compile(f"[{_SIGNS}]")
_BETWEEN = re.compile(f"(?<=[{_LETTERS}{MARKS}]) (?=[{_LETTERS}])")


def is_spaceless(text: str) -> bool:
    """Whether a text has characters of scripts without spaces."""
    return not text.isascii() and _LETTER.search(text) is not None


def spaced(text: str) -> str:
    """Put spaces around each character of scripts without spaces, and drop their punctuation."""
    if not is_spaceless(text):
        return text
    return " ".join(_SIGN.sub(" ", _LETTER.sub(r" \1 ", text)).split())


def with_starts(text: str) -> str:
    """Insert `START` at spaces between Korean words, so that `joined` can restore the spaces."""
    return text if text.isascii() else _GAP.sub(f" {START}", text)


def joined(text: str) -> str:
    """Undo `spaced`: join characters as written; Korean keeps the spaces of `with_starts`."""
    return text if text.isascii() else _BETWEEN.sub("", text).replace(START, "")


def say_characters(texts: Sequence[str], what: str) -> None:
    """Log once per use that captions are split into characters."""
    number = sum(map(is_spaceless, texts))
    if number:
        _say(what, number, len(texts))


@cache
def _say(what: str, number: int, count: int) -> None:
    log.info(f"{what}: {number} of {count} captions are in scripts without spaces between words")
