"""Read text files strictly as UTF-8 or UTF-16; each error names the file and the line."""

from __future__ import annotations

import codecs
import gzip
import logging
import re
import zlib
from functools import cache
from pathlib import Path
from typing import Literal

from captioning.config.setting_error import SettingError, SettingNotFoundError

log = logging.getLogger(__name__)

GZIP = ".gz"  # after a name: the file is read as what it holds
# What files begin with whose characters have two bytes or four; names as iconv has them.
_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32LE"),
    (codecs.BOM_UTF32_BE, "UTF-32BE"),
    (codecs.BOM_UTF16_LE, "UTF-16LE"),
    (codecs.BOM_UTF16_BE, "UTF-16BE"),
)

_HEAD, _SHARE = 4096, 8  # bytes that show UTF-16 without a mark: one in 8 is zero
# Encodings of texts whose letters are mostly beyond ASCII: name, codec, letters, and which share of
# what is beyond ASCII these are at least. The first that fits counts.
_OTHER_SCRIPTS = (
    ("WINDOWS-1251", "cp1251", "[\u0430-\u044f]", 0.7),
    ("KOI8-R", "koi8-r", "[\u0430-\u044f]", 0.7),
    ("SHIFT_JIS", "cp932", "[\u3041-\u30fe]", 0.3),
    ("EUC-JP", "euc_jp", "[\u3041-\u30fe]", 0.3),
    ("EUC-KR", "euc_kr", "[\uac00-\ud7a3]", 0.9),
    ("GB18030", "gb2312", "[\u4e00-\u9fff]", 0.7),
    ("BIG5", "big5", "[\u4e00-\u9fff]", 0.7),
    ("GB18030", "gb18030", "[\u4e00-\u9fff]", 0.7),
)
# Of texts with single letters beyond ASCII: name, codec, and what tells it, first come.
_ACCENTS = (
    ("MACINTOSH", "mac-roman", "[a-z]\u2019[a-z]"),
    ("WINDOWS-1250", "cp1250", "[a-z][\u0105\u0142\u017c\u011b][a-z]"),
    ("WINDOWS-1252", "cp1252", ""),
)


def read_text(path: str | Path) -> str:
    """Read a whole text file, optionally gzipped, without its byte order mark.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the bytes are not text, see `decode`.
    """
    check_file(path)
    return decode(_read(Path(path)), str(path))


def read_head(path: Path, size: int, *, errors: Literal["strict", "replace"] = "replace") -> str:
    """Read the beginning of a text file; its last character may be cut.

    Args:
        path: the file.
        size: size in bytes.
        errors: ``"strict"``: bytes that are not text raise, see `decode`.
    """
    data = _read(path, size)
    decoder = codecs.getincrementaldecoder(_wide(data) or "utf-8-sig")(errors)
    try:
        return decoder.decode(data).removeprefix("\ufeff")
    except UnicodeDecodeError:
        return decode(data, str(path))


def ending(path: Path) -> str:
    """Return the suffix of a file in lower case, without ``.gz``."""
    name = path.name.lower().removesuffix(GZIP)
    return Path(name).suffix


def _read(path: Path, size: int = -1) -> bytes:
    with path.open("rb") as file:
        data = file.read(size)
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        with gzip.open(path) as packed:
            return packed.read(size)
    except (OSError, EOFError, zlib.error) as error:
        raise SettingError(path, f"not a complete gzip file ({error})", "get it again") from error


def _wide(data: bytes) -> str:
    """Return the encoding of UTF-16 or UTF-32 text; empty for another encoding."""
    marked = next((name for mark, name in _MARKS if data.startswith(mark)), "")
    if marked:
        return marked
    # without a mark: zeros, which texts have not, in one of two places
    even, odd = data[0:_HEAD:2].count(0), data[1:_HEAD:2].count(0)
    if (even and odd) or _SHARE * (even + odd) < len(data[:_HEAD]):
        return ""
    return "UTF-16LE" if odd else "UTF-16BE" if even else ""


@cache  # once for all files of a folder
def _say(place: str, kind: str) -> None:
    log.warning(f"{place} was read as {kind}; save it as UTF-8 for other tools")


def check_file(path: str | Path) -> None:
    """Raise an error if a file of a dataset does not exist.

    Raises:
        FileNotFoundError: names the command that says where to get it.
    """
    if not Path(path).is_file():
        raise SettingNotFoundError(
            path, "no such file", "`captioning prepare data=NAME` says where to get it"
        )


def decode(data: bytes, where: str) -> str:
    """Decode UTF-8 bytes, with ``where`` in error messages; UTF-16 and UTF-32 are logged.

    Raises:
        ValueError: bytes that are neither.
    """
    wide = _wide(data)
    try:
        text = data.decode(wide or "utf-8-sig").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        if wide:
            problem = f"not whole as {wide} ({error.reason})"
            raise SettingError(where, problem, "get it again") from error
        line = data.count(b"\n", 0, error.start) + 1
        kind = _encoding_of(data)
        advice = f", such as by iconv -f {kind} -t UTF-8" if kind else ""
        problem = f"line {line}: not UTF-8 (byte 0x{data[error.start]:02x})"
        raise SettingError(where, problem, f"save the file as UTF-8{advice}") from error
    if wide:
        _say(str(Path(where).parent / f"*{Path(where).suffix}"), wide)
    # carriage returns alone end lines of old and of some spreadsheets' files
    return text if "\n" in text else text.replace("\r", "\n")


def _encoding_of(data: bytes) -> str:
    """Guess the encoding of bytes that are not UTF-8, as iconv names it; empty if unknown."""
    if b"\0" in data:
        return "UTF-16"
    beyond = re.findall(rb"[\x80-\xff]+", data)
    is_accents = 2 * sum(len(run) for run in beyond if len(run) <= 2) >= sum(map(len, beyond))
    for name, codec, pattern, share in (
        ((*accent, 0.0) for accent in _ACCENTS) if is_accents else _OTHER_SCRIPTS
    ):
        try:
            text = data.decode(codec)
        except UnicodeDecodeError:
            continue
        found = re.findall(pattern, text)
        if found and len(found) >= share * len(re.findall(r"[^\0-\x7f]", text)):
            return name
    return ""


def read_lines(path: str | Path) -> list[tuple[int, str]]:
    r"""Lines that are not blank, with their numbers from 1.

    Only line feeds end a line (``\\r\\n`` too): Unicode's other separators may stand in captions.
    """
    lines = enumerate(read_text(path).split("\n"), start=1)
    return [(number, line.rstrip("\r")) for number, line in lines if line.strip()]


def read_image_list(path: str | Path) -> dict[str, str]:
    """Read image ids or file names of a split list, one per line, each with its ``FILE:LINE``.

    The last word of a line counts, as in lists of ``val2014/NAME.jpg ID``.

    Raises:
        ValueError: an entry given twice, or an empty list.
    """
    places: dict[str, str] = {}
    for number, line in read_lines(path):
        entry = line.split()[-1]
        where = f"{path}:{number}"
        if entry in places:
            raise SettingError(
                where, f"{entry!r} is listed twice, first at {places[entry]}", "remove one"
            )
        places[entry] = where
    if not places:
        raise SettingError(path, "the list is empty", "it needs one image a line")
    return places
