"""Text files read strictly: UTF-8 or an error that names the file and the line."""

from __future__ import annotations

from pathlib import Path


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
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        kind = "UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "ISO-8859-1"
        raise ValueError(
            f"{where}: line {line}: not UTF-8 (byte 0x{byte:02x}); save the file as UTF-8, such as "
            f"by iconv -f {kind} -t UTF-8"
        ) from error


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
