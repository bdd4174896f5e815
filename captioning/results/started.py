"""Which paths of a run folder this user's own command line named, so that nobody is warned of them.

A folder that comes from somebody else may name any file of the user's to be read. So a run that is
started leaves ``started.json``: for each path that it reads a keyed hash of the path and of the
setting that names it. The key is random, lies in the user's own folder of states, and is read by
nobody else. A folder from elsewhere, or a setting that was edited, has no hash that fits.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Collection, Iterable
from pathlib import Path

from captioning.runtime.files import read_json, write_json

FILE_NAME = "started.json"
_BYTES = 32


def real_path(text: str) -> Path:
    """The place that a path leads to, from the current folder."""
    return Path(text).expanduser().resolve()


def mark_started(folder: Path, paths: Iterable[tuple[str, str]]) -> None:
    """Keep which paths a run reads, as it is started here.

    Nothing is written where no key can be kept, as in a container without home, or where the folder
    of a finished run cannot be written.

    Args:
        folder: of the run.
        paths: key of the setting, and the path.
    """
    key = _key(make=True)
    if key is not None and os.access(folder, os.W_OK):
        write_json(folder / FILE_NAME, sorted({_mark(key, name, text) for name, text in paths}))


def started_here(folder: Path, paths: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those of the paths that this user had named when the run was started.

    Args:
        folder: of the run.
        paths: key of the setting, and the path.
    """
    path, key = folder / FILE_NAME, _key(make=False)
    if key is None or not path.is_file():
        return set()
    try:
        marks = {str(mark) for mark in read_json(path, list)}
    except ValueError:  # damaged: whoever did it, the paths are told
        return set()
    return {pair for pair in paths if _mark(key, *pair) in marks}


def _mark(key: bytes, name: str, text: str) -> str:
    told = f"{name}\0{real_path(text)}".encode(errors="surrogateescape")
    return hmac.new(key, told, hashlib.sha256).hexdigest()[:32]


def _key_path() -> Path:
    states = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(states).expanduser() / "captioning" / "key"


def _key(*, make: bool) -> bytes | None:
    """The user's key; None where there is none, or others could have read or written it."""
    try:
        path = _key_path()
        if make and not path.exists():
            _make(path)
        known = path.stat()
        is_private = known.st_uid == os.getuid() and not stat.S_IMODE(known.st_mode) & 0o077
        key = path.read_bytes() if is_private else b""
    except (OSError, RuntimeError):  # no such folder, none that can be written, or no home
        return None
    return key if len(key) == _BYTES else None


def _make(path: Path) -> None:
    """Write a new key; of two programs that do so the first one's counts."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f"{path.name}.{secrets.token_hex(6)}")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
        try:
            os.link(part, path)
        except FileExistsError:
            return
    finally:
        part.unlink(missing_ok=True)
