"""Expand patterns of shard names with braces and stars, as webdataset writes them."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from captioning.config.setting_error import Setting, SettingError, SettingNotFoundError

MAX_NAMES = 1_000_000
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_REMOTE = re.compile(r"(pipe|https?|s3|gs|hf)(:)", re.IGNORECASE)


def shard_files(folder: str | Path, shards: str | Sequence[str]) -> list[Path]:
    """Return the files that patterns match, in order, without repeats.

    Args:
        folder: base of the patterns.
        shards: patterns with ``{000000..000331}``, ``{a,b}``, ``*``, ``?`` and ``**``.

    Raises:
        FileNotFoundError: a pattern names no file, or a file that is not there.
        ValueError: no pattern, or one that names a program or an address.
    """
    patterns = [shards] if isinstance(shards, str) else list(shards)
    if not patterns:
        raise SettingError(folder, "no shards are named", "name them, such as shards='*.tar'")
    files = [path for pattern in patterns for path in _matches(Path(folder), pattern)]
    return list(dict.fromkeys(files))


def _matches(folder: Path, pattern: str) -> list[Path]:
    if _REMOTE.match(pattern):
        raise SettingError(
            Setting("shards", repr(pattern)), "shards must be files", "download them first"
        )
    paths = []
    for name in _expanded(pattern):
        if not glob.has_magic(name):
            paths.append(folder / name)
        else:
            relative = sorted(glob.glob(name, root_dir=folder, recursive=True))
            paths += [folder / match for match in relative if os.path.isfile(folder / match)]
    if not paths:
        raise SettingNotFoundError(
            folder, f"no shard is named {pattern!r}", "correct ", Setting("shards")
        )
    missing = [path for path in paths if not path.is_file()]
    if missing:
        more = f" (nor {len(missing) - 1} others of {len(paths)})" if len(missing) > 1 else ""
        raise SettingNotFoundError(
            missing[0], f"no such shard{more}", "correct ", Setting("shards", repr(pattern))
        )
    return paths


def _expanded(pattern: str) -> Iterator[str]:
    """Expand a pattern with braces to names."""
    parts = _BRACES.split(pattern)
    choices = [_choices(part) if n % 2 else [part] for n, part in enumerate(parts)]
    number = 1
    for choice in choices:
        number *= len(choice)
    if number > MAX_NAMES:
        raise _too_many(pattern)
    return map("".join, itertools.product(*choices))


def _choices(content: str) -> Sequence[str]:
    match = _RANGE.fullmatch(content)
    if match is None:
        return content.split(",")
    first, last = match.groups()
    if max(len(first), len(last)) > 18 or int(last) - int(first) >= MAX_NAMES:
        raise _too_many(f"{{{content[:60]}}}")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def _too_many(pattern: str) -> SettingError:
    problem = f"names more than {MAX_NAMES} files"
    return SettingError(Setting("shards", repr(pattern)), problem, "name them by several patterns")
