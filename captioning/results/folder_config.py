"""Read the config of a run folder that may come from a third party, as data only.

`captioning.config.build` builds parts, and refuses objects that a folder may not name.

Such a folder could make a command read any of the user's files. So a run writes ``started.json``
when it starts: a keyed hash of each path that it reads and of the setting that names the path. The
random key lies in the user's own state folder, readable by nobody else. A folder from elsewhere, or
an edited setting, has no matching hash.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from captioning.config.moved import rename_targets
from captioning.config.plugins import FILE, data_folders
from captioning.runtime.files import read_json, write_json

log = logging.getLogger(__name__)

# Keys of which nothing is read where a finished run is opened.
NOT_READ = (
    *("run_name", "run_dir", "resume", "branch_from", "logger", "trainer", "callbacks", "hydra"),
    *("paths.data", "paths.runs"),
)
_DAMAGE = (
    *(yaml.YAMLError, OSError, TypeError, ValueError, OmegaConfBaseException),
    RecursionError,  # nested too deep
)
MAX_SHOWN = 20  # paths of a folder
FILE_OF_DATA = re.compile(r"(.+)\.files\[\d+\]\.path")  # written from the data's own root
_shown: set[tuple[str, str]] = set()
FILE_NAME = "started.json"
_BYTES = 32


def read_folder_config(path: Path) -> DictConfig:
    """Read the settings of a file, in which a run has resolved all references.

    Raises:
        ValueError: the file cannot be read, or holds no settings or a reference.
    """
    try:
        config = OmegaConf.load(path)
        if not isinstance(config, DictConfig) or not config:
            raise ValueError("it holds no settings")
        values = OmegaConf.to_container(config, resolve=False)
    except _DAMAGE as error:
        raise ValueError(
            f"{path} cannot be read ({str(error).partition(chr(10))[0]}): it was damaged or cut "
            "off; restore it, or give another folder"
        ) from error
    for key, text in _texts(values):
        if "${" in text:
            raise ValueError(
                f"{path}: {key}: {text[:80]!r} refers to another value, which is not allowed in a "
                "run folder's config: write the value itself"
            )
    rename_targets(config)
    OmegaConf.set_cache(config, {FILE: str(path)})
    return config


def show_outside(paths: Iterable[tuple[str, str]], folder: Path) -> None:
    """Log all paths that a folder reads outside itself and the user's data folders.

    A process logs each key and path once. It does not log paths from the command line that started
    the run, see `captioning.results.folder_config`.

    Args:
        paths: key or file that names a path, and the path.
        folder: folder that names them.
    """
    inside = [known.resolve() for known in (folder, *data_folders())]
    keys: dict[str, list[str]] = {}  # by path as it is written
    paths = [*paths]
    own = started_here(folder, paths)
    for key, text in paths:
        real = real_path(text)
        told = (key, str(real))
        is_known = told in _shown or (key, text) in own
        if not is_known and not any(real.is_relative_to(known) for known in inside):
            _shown.add(told)
            keys.setdefault(text, []).append(key)
    lines = [
        f"{folder}: {names[0]} reads outside of your data folders: {text!r}"
        + (f" (so do {', '.join(names[1:])})" if names[1:] else "")
        for text, names in keys.items()
    ]
    for line in lines[:MAX_SHOWN]:
        log.warning(line)
    if len(lines) > MAX_SHOWN:
        log.warning(f"{folder}: and {len(lines) - MAX_SHOWN} further paths")


def paths_in(tree: Any) -> Iterator[tuple[str, str]]:
    """Paths in a run's settings that are read when the run is opened, by key."""
    texts = dict(_texts(tree))
    for key, text in texts.items():
        if any(f"{key}.".startswith(f"{name}.") for name in NOT_READ) or not _is_path(text):
            continue
        if data := FILE_OF_DATA.fullmatch(key):
            root = texts.get(f"{data[1]}.root", "")
            text = os.path.normpath(Path(root, text))
        yield key, text


def _is_path(text: str) -> bool:
    """Whether a text is probably a path, as names of models have slashes, too."""
    if "\0" in text or "\n" in text or not any(mark in text for mark in ("/", os.sep)):
        return False
    path = Path(text)
    return path.is_absolute() or text.startswith("~") or ".." in path.parts or os.path.lexists(path)


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """All texts of a config with their full keys, including the keys of mappings."""
    if isinstance(value, dict):
        for name, content in value.items():
            inner = f"{key}.{name}" if key else str(name)
            yield from _texts(content, inner)
    elif isinstance(value, list):
        for number, content in enumerate(value):
            yield from _texts(content, f"{key}[{number}]")
    elif isinstance(value, str):
        yield key, value
    elif isinstance(value, Path):
        yield key, str(value)


def real_path(text: str) -> Path:
    """Path resolved from the current folder, through links."""
    return Path(text).expanduser().resolve()


def mark_started(folder: Path, paths: Iterable[tuple[str, str]]) -> None:
    """Record which paths a run reads when it is started on this machine.

    Nothing is written if no key can be stored, as in a container without home, or if a finished
    run's folder is read-only.

    Args:
        folder: the run's folder.
        paths: key of the setting, and the path.
    """
    key = _key(make=True)
    if key is not None and os.access(folder, os.W_OK):
        write_json(folder / FILE_NAME, sorted({_mark(key, name, text) for name, text in paths}))


def started_here(folder: Path, paths: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Paths among these that the user named when starting the run.

    Args:
        folder: the run's folder.
        paths: key of the setting, and the path.
    """
    path, key = folder / FILE_NAME, _key(make=False)
    if key is None or not path.is_file():
        return set()
    try:
        marks = {str(mark) for mark in read_json(path, list)}
    except ValueError:  # damaged, by whomever: report the paths
        return set()
    return {pair for pair in paths if _mark(key, *pair) in marks}


def _mark(key: bytes, name: str, text: str) -> str:
    told = f"{name}\0{real_path(text)}".encode(errors="surrogateescape")
    return hmac.new(key, told, hashlib.sha256).hexdigest()[:32]


def _key_path() -> Path:
    states = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(states).expanduser() / "captioning" / "key"


def _key(*, make: bool) -> bytes | None:
    """User's secret key; None if it is missing or others could have read or written it."""
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
    """Write a new key; if two programs do so at once, the first key is used."""
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
