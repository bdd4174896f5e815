"""Text files read strictly: UTF-8 or an error that names the file and the line."""

from __future__ import annotations

import re
from pathlib import Path

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
    """The whole of a UTF-8 file (a byte order mark is left out).

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: bytes that are not UTF-8.
    """
    check_file(path)
    return decode(Path(path).read_bytes(), str(path))


def check_file(path: str | Path) -> None:
    """Refuse a file of a data set that is not there.

    Raises:
        FileNotFoundError: names the command that says where to get it.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"{path}: no such file; `captioning prepare data=NAME` says where to get it"
        )


def decode(data: bytes, where: str) -> str:
    """Text of UTF-8 bytes, ``where`` naming them in the error.

    Raises:
        ValueError: bytes that are not UTF-8.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        kind = _encoding_of(data)
        advice = f", such as by iconv -f {kind} -t UTF-8" if kind else ""
        raise ValueError(
            f"{where}: line {line}: not UTF-8 (byte 0x{data[error.start]:02x}); save the file as "
            f"UTF-8{advice}"
        ) from error
    # carriage returns alone end lines of old and of some spreadsheets' files
    return text if "\n" in text else text.replace("\r", "\n")


def _encoding_of(data: bytes) -> str:
    """What bytes that are not UTF-8 are likely in, as iconv calls it; empty: cannot be told."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
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
    """Image ids or file names of a split list, one a line, each with its ``FILE:LINE``.

    Of a line with several words the last counts, as in lists of ``val2014/NAME.jpg ID``.

    Raises:
        ValueError: an entry given twice, or an empty list.
    """
    places: dict[str, str] = {}
    for number, line in read_lines(path):
        entry = line.split()[-1]
        where = f"{path}:{number}"
        if entry in places:
            raise ValueError(f"{where}: {entry!r} is listed twice, first at {places[entry]}")
        places[entry] = where
    if not places:
        raise ValueError(f"{path}: the list is empty; it needs one image a line")
    return places
