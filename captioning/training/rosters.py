"""Read the data that a config names: the splits, a corpus and the training set.

`check_photos` decodes each photo once and caches the list of damaged photos.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from rich.progress import track

from captioning.config.build import build_part
from captioning.data.features.store import FeatureStore
from captioning.data.roster import Dropped, Roster, build_roster
from captioning.data.steps.base import CORPUS, AbstractStep, StepContext, apply_steps
from captioning.results.run_folder import RunFolder
from captioning.runtime.cores import num_cores
from captioning.runtime.files import write_json
from captioning.training.settings import AbstractDataSettings, Corpus, DataSettings, Part
from captioning.vision.photo_places import photo_stamp
from captioning.vision.photos import MAX_PIXELS, photo_problem

log = logging.getLogger(__name__)

MAX_LOGGED = 5  # dropped items in the log
_CACHE_VERSION = 3
_BLOCK = 4096  # photos that are handed to the threads at once
_Stamp = tuple[int, int]


def settings_of_run(folder: Path) -> DataSettings:
    """Settings of a run's folder, after its data were compared with the current files.

    Raises:
        FileNotFoundError, ValueError: see `RunFolder.config`.
    """
    return DataSettings.of(RunFolder(folder).config())


def read_roster(settings: AbstractDataSettings, split: str) -> Roster:
    """Read one split of ``settings.data`` and apply the data steps meant for every split.

    The roster is cut to ``first_images`` and has no broken photos.

    Raises:
        ValueError: the data set has no such split, or a data step does not fit the split.
    """
    steps = [step for step in build_steps(settings.steps) if step.every_split]
    return apply_steps(_read_split(settings, split), steps, _context(settings, split))


def read_with_steps(settings: AbstractDataSettings, split: str) -> tuple[Roster, StepContext]:
    """Read one split, or `CORPUS`, and apply all data steps; return their context, too.

    Raises:
        ValueError: the data set has no such split, or a data step does not fit the split.
    """
    context = _context(settings, split)
    if split == CORPUS:
        roster = read_corpus(settings.corpus, number=settings.first_images)
    else:
        roster = _read_split(settings, split)
    return apply_steps(roster, build_steps(settings.steps), context), context


def read_train(settings: AbstractDataSettings) -> tuple[Roster, StepContext]:
    """Read the training set, a split or a corpus, and apply all data steps; see `StepContext`."""
    return read_with_steps(settings, CORPUS if trains_on_text(settings) else "train")


def check_data(settings: AbstractDataSettings) -> None:
    """Raise an error for wrong data settings before anything is read.

    Raises:
        ValueError: ``first_images`` or a setting of a step is missing or wrong.
    """
    if settings.first_images is not None:
        _check_number(settings.first_images)
    build_steps(settings.steps)


def build_steps(chosen: Mapping[str, Part]) -> list[AbstractStep]:
    """Build the data steps of the config group ``steps``, in order.

    Raises:
        ValueError: a setting of a step is missing or wrong.
    """
    steps = []
    for part in chosen.values():
        if missing := sorted(OmegaConf.missing_keys(part)):
            raise ValueError(f"set {missing[0]}=..., which has no default")
        steps.append(build_part(part, _convert_="all"))
    return steps


def _context(settings: AbstractDataSettings, split: str) -> StepContext:
    return StepContext(
        split=split,
        seed=settings.seed,
        cache_folder=Path(settings.paths.cache),
        is_cut=settings.first_images is not None,
    )


def _read_split(settings: AbstractDataSettings, split: str) -> Roster:
    data, imported = settings.data, settings.features.imported
    if split not in data.splits:
        raise ValueError(
            f"data.{split} is not set for {data.name}; its splits: {list(data.splits)}"
        )
    entry = data.splits[split]
    roster = _cut(read_annotations(entry, imported=imported), settings.first_images)
    roster = with_usable_photos(roster, entry, imported=imported, cache=settings.paths.cache)
    _log_dropped(roster)
    return roster


def _cut(roster: Roster, number: int | None) -> Roster:
    return roster if number is None else first_images(roster, number)


def _log_dropped(roster: Roster) -> None:
    for item in roster.dropped[:MAX_LOGGED]:
        log.info(f"{roster.name}: left out {item.item}: {item.rule}")
    if len(roster.dropped) > MAX_LOGGED:
        log.info(f"{roster.name}: left out {len(roster.dropped)} items in all")


def trains_on_text(settings: AbstractDataSettings) -> bool:
    """Whether training uses captions only, without photos."""
    return bool(settings.corpus.train)


def read_corpus(chosen: Corpus, *, number: int | None = None, group: str = CORPUS) -> Roster:
    """Read the captions of a corpus, without its photos.

    Args:
        chosen: the corpus.
        number: number of images, from the first, whose captions are read; None: all.
        group: key of the corpus, for errors.

    Raises:
        ValueError, OSError: the corpus is missing or unreadable, or its share is invalid.
    """
    if not chosen.train:
        where = "corpus" if group == CORPUS else f"corpus@{group}"
        raise ValueError(
            f"{where}={chosen.name} has no captions ({group}.train is null): choose "
            f"one that has, such as {where}=coco, or {where}=lines {group}.train.path=FILE"
        )
    roster = _cut(build_part(chosen.train), number)
    _log_dropped(roster)
    if chosen.share is None:
        return roster
    return random_share(roster, chosen.share, seed=chosen.share_seed, name=f"{group}.share")


def random_share(roster: Roster, share: float, *, seed: int, name: str) -> Roster:
    """Draw a random share of a roster's captions, at least one.

    With the same seed, a larger share contains the smaller ones.

    Args:
        roster: not empty.
        share: share of its captions.
        seed: the draw's seed.
        name: name of the setting that gave the share, for errors.

    Raises:
        ValueError: the share is not above 0 and at most 1.
    """
    if not 0 < share <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1: got {share}")
    order = np.random.default_rng(seed).permutation(len(roster))
    rows = sorted(order[: max(1, int(share * len(roster)))].tolist())
    return build_roster(roster.name, [roster.samples[row] for row in rows], roster.dropped)


def read_annotations(entry: Part, *, imported: str | None) -> Roster:
    """Read the roster of a split; with imported features its photos need not exist.

    Args:
        entry: the reader and its arguments.
        imported: folder of imported features, if they replace the photos.
    """
    if imported and entry.get("missing_photos") == "error":
        return build_part(entry, missing_photos="keep")
    return build_part(entry)


def with_usable_photos(roster: Roster, entry: Part, *, imported: str | None, cache: str) -> Roster:
    """Roster without unreadable photos; each photo is opened once.

    Photos that cannot be opened are recorded in ``dropped``. No photo is opened if the reader keeps
    images without photos, or with imported features, which bring the photo sizes that boxes refer
    to.

    Args:
        roster: roster of a split.
        entry: the reader and its arguments.
        imported: folder of imported features, if they replace the photos.
        cache: folder of the cached results.
    """
    if imported:
        return with_sizes(roster, FeatureStore.open(imported))
    if entry.get("missing_photos") == "keep":
        return roster
    paths = sorted({sample.image_path for sample in roster.samples})
    broken = check_photos(paths, cache_path=Path(cache) / "photos.json")
    return drop_photos(roster, broken) if broken else roster


def with_sizes(roster: Roster, store: FeatureStore) -> Roster:
    """Roster with photo sizes from a feature store, where annotations with boxes lack them.

    Args:
        roster: roster of images that may be in the store or not.
        store: store of imported features.
    """
    unknown = list(dict.fromkeys(s.image_id for s in roster.samples if s.regions and not s.size))
    sizes = dict(zip(unknown, store.sizes_of_ids(unknown), strict=True))
    if not any(sizes.values()):
        return roster
    samples = [
        replace(sample, size=sizes.get(sample.image_id, sample.size)) for sample in roster.samples
    ]
    return build_roster(roster.name, samples, roster.dropped)


def first_images(roster: Roster, number: int) -> Roster:
    """The captions of the first ``number`` images.

    Raises:
        ValueError: not a whole number of at least 1.
    """
    _check_number(number)
    image_ids = set(list(roster.rows_by_image)[:number])
    samples = [sample for sample in roster.samples if sample.image_id in image_ids]
    return build_roster(roster.name, samples, roster.dropped)


def _check_number(number: object) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError(
            f"first_images must be a whole number of at least 1, or null for all: got {number!r}"
        )


def check_photos(
    paths: Iterable[str | Path],
    *,
    cache_path: str | Path,
    max_pixels: int = MAX_PIXELS,
    num_workers: int | None = None,
) -> list[Dropped]:
    """Decode each photo that was not checked before, and list the bad photos by rule.

    Results are cached, even if the check is stopped.

    Args:
        paths: photos; repeats are checked once.
        cache_path: JSON file of earlier results; a photo is decoded again when its size or its
            modification time differs.
        max_pixels: a larger photo is dropped without decoding.
        num_workers: threads, as decoders release Python's lock; None: one per CPU core.

    Returns:
        One `Dropped` for each bad photo in the given order; ``item`` is its path.
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
    """Roster without the samples of these photos, with new row numbers.

    Args:
        roster: roster to thin out.
        dropped: the result of `check_photos`; entries of photos outside the roster are left out.

    Raises:
        ValueError: no sample would remain.
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
    """Read earlier results; empty if the file is missing, damaged or for another limit.

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
