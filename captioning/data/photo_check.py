"""Photos of a roster, checked once by decoding each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from rich.progress import track

from captioning.data.roster import Dropped, Roster, build_roster
from captioning.runtime.cores import num_cores
from captioning.runtime.files import write_json
from captioning.vision.photo_places import photo_stamp
from captioning.vision.photos import MAX_PIXELS, photo_problem

_CACHE_VERSION = 3
_BLOCK = 4096  # photos that are handed to the threads at once
_Stamp = tuple[int, int]


def check_photos(
    paths: Iterable[str | Path],
    *,
    cache_path: str | Path,
    max_pixels: int = MAX_PIXELS,
    num_workers: int | None = None,
) -> list[Dropped]:
    """Decodes each photo that was not checked before, and lists the bad ones by rule.

    What was checked is kept, also where the check is stopped.

    Args:
        paths: photos; repeats are checked once.
        cache_path: JSON file of earlier results; a photo is decoded again when its size or its
            modification time differs.
        max_pixels: a photo of more is dropped without decoding it.
        num_workers: threads, as decoders leave Python's lock; None for one a processor core.

    Returns:
        One `Dropped` a bad photo, ``item`` being its path, in the order given.
    """
    threads = num_cores() if num_workers is None else num_workers
    if max_pixels < 1 or threads < 1:
        got = f"got {max_pixels} and {num_workers}"
        raise ValueError(f"max_pixels and num_workers must be at least 1: {got}")
    unique = list(dict.fromkeys(str(path) for path in paths))
    cache = _read_cache(Path(cache_path), max_pixels)
    keys = {path: os.path.abspath(path) for path in unique}
    stamps = {path: _stamp(path) for path in unique}
    results = {
        path: earlier[2]
        for path in unique
        if (earlier := cache.get(keys[path])) and (earlier[0], earlier[1]) == stamps[path]
    }
    fresh = [path for path in unique if path not in results]
    if fresh:
        try:
            for path, problem in zip(fresh, _problems(fresh, max_pixels, threads), strict=True):
                results[path] = problem
        finally:
            # A file that is not there has no stamp: the next call must look again.
            checked = ((path, stamps[path]) for path in fresh if path in results)
            cache |= {keys[path]: [*s, results[path]] for path, s in checked if s is not None}
            _write_cache(Path(cache_path), max_pixels, cache)
    return [Dropped(item=path, rule=results[path]) for path in unique if results[path]]


def drop_photos(roster: Roster, dropped: Sequence[Dropped]) -> Roster:
    """The roster without the samples of these photos; rows are numbered anew.

    Args:
        roster: to thin out.
        dropped: what `check_photos` returned; entries of photos outside the roster are left out.

    Raises:
        ValueError: no sample would be left.
    """
    rules = {drop.item: drop for drop in dropped}
    if not any(str(sample.image_path) in rules for sample in roster.samples):
        return roster
    remaining = [sample for sample in roster.samples if str(sample.image_path) not in rules]
    if not remaining:
        raise ValueError(
            f"{roster.name}: every photo is bad; the first, {dropped[0].item}: {dropped[0].rule}"
        )
    used = dict.fromkeys(str(sample.image_path) for sample in roster.samples)
    used_drops = [rules[path] for path in used if path in rules]
    return build_roster(roster.name, remaining, [*roster.dropped, *used_drops])


def _problems(paths: Sequence[str], max_pixels: int, num_threads: int) -> Iterator[str]:
    check = partial(photo_problem, max_pixels=max_pixels)
    shown = partial(track, description="checking photos", total=len(paths), transient=True)
    pool = ThreadPoolExecutor(num_threads)
    try:
        blocks = (paths[start : start + _BLOCK] for start in range(0, len(paths), _BLOCK))
        yield from shown(chain.from_iterable(pool.map(check, block) for block in blocks))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _stamp(path: str) -> _Stamp | None:
    try:
        return photo_stamp(path)
    except OSError:
        return None


def _read_cache(path: Path, max_pixels: int) -> dict[str, list[Any]]:
    """Earlier results; none when the file is missing, damaged, or of another limit.

    A damaged cache costs only time, so it is built again and not reported.
    """
    if not path.is_file():
        return {}
    try:
        cache = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return {}
    if not isinstance(cache, dict) or not isinstance(cache.get("photos"), dict):
        return {}
    if cache.get("version") != _CACHE_VERSION or cache.get("max_pixels") != max_pixels:
        return {}
    return {
        key: value
        for key, value in cache["photos"].items()
        if isinstance(value, list) and [type(item) for item in value] == [int, int, str]
    }


def _write_cache(path: Path, max_pixels: int, photos: dict[str, list[Any]]) -> None:
    cache = {"version": _CACHE_VERSION, "max_pixels": max_pixels, "photos": photos}
    write_json(path, cache, indent=None)
