"""Files that appear whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path


def write_whole(path: str | Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file in the same folder, then put it in place.

    If ``write`` or the disk fails, what was there before is still there.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=path.suffix)
    os.close(handle)
    try:
        write(Path(name))
        with open(name, "rb") as part:
            os.fsync(part.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Write text lines, given without their ends."""

    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(line + "\n" for line in lines)

    write_whole(path, write)


def write_json(path: str | Path, value: object) -> None:
    """Write plain values as indented JSON."""
    write_lines(path, [json.dumps(value, indent=1)])


def _umask() -> int:
    # the temporary file is private; the result gets the rights that any new file would have
    mask = os.umask(0)
    os.umask(mask)
    return mask
