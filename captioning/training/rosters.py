"""Reads the data that a config names: the splits, a corpus, and the training set."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
from omegaconf import DictConfig, OmegaConf

from captioning.config.build import build_part
from captioning.data.features.store import FeatureStore
from captioning.data.photo_check import check_photos, drop_photos
from captioning.data.roster import Roster, build_roster
from captioning.data.steps.base import CORPUS, AbstractStep, StepContext, apply_steps

log = logging.getLogger(__name__)

MAX_LOGGED = 5  # dropped items in the log


def read_roster(config: DictConfig, split: str) -> Roster:
    """One split of ``config.data``, as the steps for every split leave it.

    It is cut to ``first_images`` and has no broken photos.

    Raises:
        ValueError: the data set has no such split, or a step does not suit it.
    """
    steps = [step for step in build_steps(config) if step.every_split]
    return apply_steps(_read_split(config, split), steps, _context(config, split))


def read_with_steps(config: DictConfig, split: str) -> tuple[Roster, StepContext]:
    """One split, or `CORPUS`, after all steps of ``config.steps``, and the steps' context.

    Raises:
        ValueError: the data set has no such split, or a step does not suit it.
    """
    context = _context(config, split)
    roster = read_corpus(config) if split == CORPUS else _read_split(config, split)
    return apply_steps(roster, build_steps(config), context), context


def read_train(config: DictConfig) -> tuple[Roster, StepContext]:
    """The training set: the training split, or a corpus, after all steps; see `StepContext`."""
    return read_with_steps(config, CORPUS if trains_on_text(config) else "train")


def check_data(config: DictConfig) -> None:
    """Refuse wrong settings of the data before anything is read.

    Raises:
        ValueError: ``first_images`` or a setting of a step is missing or wrong.
    """
    if config.get("first_images") is not None:
        _check_number(config.first_images)
    build_steps(config)


def build_steps(config: DictConfig) -> list[AbstractStep]:
    """The steps of ``config.steps``, in order.

    Raises:
        ValueError: a setting of a step is missing or wrong.
    """
    steps = []
    for chosen in (config.get("steps") or {}).values():
        if missing := sorted(OmegaConf.missing_keys(chosen)):
            raise ValueError(f"give {missing[0]}=..., which has no default")
        steps.append(build_part(chosen, _convert_="all"))
    return steps


def _context(config: DictConfig, split: str) -> StepContext:
    return StepContext(
        split=split,
        seed=config.get("seed", 0),
        cache_folder=Path(config.paths.cache),
        is_cut=config.get("first_images") is not None,
    )


def _read_split(config: DictConfig, split: str) -> Roster:
    if config.data.get(split) is None:
        known = [key for key, value in config.data.items() if OmegaConf.is_dict(value)]
        raise ValueError(f"data.{split} is not set for {config.data.name}; its splits: {known}")
    entry = config.data[split]
    roster = with_usable_photos(_cut(read_annotations(config, entry), config), config, entry)
    _log_dropped(roster)
    return roster


def _cut(roster: Roster, config: DictConfig) -> Roster:
    number = config.get("first_images")
    return roster if number is None else first_images(roster, number)


def _log_dropped(roster: Roster) -> None:
    for item in roster.dropped[:MAX_LOGGED]:
        log.info(f"{roster.name}: left out {item.item}: {item.rule}")
    if len(roster.dropped) > MAX_LOGGED:
        log.info(f"{roster.name}: left out {len(roster.dropped)} items in all")


def trains_on_text(config: DictConfig) -> bool:
    """Whether training sees captions alone."""
    return has_corpus(config, CORPUS)


def has_corpus(config: DictConfig, group: str) -> bool:
    """Whether a key holds a corpus."""
    return bool((config.get(group) or {}).get("train"))


def read_corpus(config: DictConfig, group: str = CORPUS) -> Roster:
    """The captions of ``config.corpus``, whose photos are not looked at.

    Args:
        config: with ``first_images``.
        group: another key of it that holds a corpus.

    Raises:
        ValueError, OSError: there is no corpus or it cannot be read, or a share of it that makes
            no sense.
    """
    chosen = config.get(group)
    if not has_corpus(config, group):
        where = "corpus" if group == CORPUS else f"corpus@{group}"
        raise ValueError(
            f"{where}={(chosen or {}).get('name')} has no captions ({group}.train is null): choose "
            f"one that has, such as {where}=coco, or {where}=lines {group}.train.path=FILE"
        )
    roster = _cut(build_part(chosen.train), config)
    _log_dropped(roster)
    if chosen.get("share") is None:
        return roster
    return random_share(roster, chosen.share, seed=chosen.share_seed, name=f"{group}.share")


def random_share(roster: Roster, share: float, *, seed: int, name: str) -> Roster:
    """Some of a roster's captions, drawn at random and at least one.

    Larger shares of one seed hold the smaller ones.

    Args:
        roster: not empty.
        share: of its captions.
        seed: of the draw.
        name: of the setting that gave the share, for errors.

    Raises:
        ValueError: the share is not above 0 and at most 1.
    """
    if not 0 < share <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1: got {share}")
    order = np.random.default_rng(seed).permutation(len(roster))
    rows = sorted(order[: max(1, int(share * len(roster)))].tolist())
    return build_roster(roster.name, [roster.samples[row] for row in rows], roster.dropped)


def imported_features(config: DictConfig) -> str | None:
    """The folder of imported features, if these stand for the photos."""
    return (config.get("features") or {}).get("imported")


def read_annotations(config: DictConfig, entry: DictConfig) -> Roster:
    """The roster of a split's reader; where features were imported, its photos need not be there.

    Args:
        config: with ``features``.
        entry: the reader and its arguments.
    """
    if imported_features(config) and entry.get("missing_photos") == "error":
        return build_part(entry, missing_photos="keep")
    return build_part(entry)


def with_usable_photos(roster: Roster, config: DictConfig, entry: DictConfig) -> Roster:
    """The roster as its photos allow, each of which is opened once.

    Photos that cannot be opened are recorded in ``dropped``. Where features were imported none is
    opened: sizes that boxes are in pixels of are those that came with the features. Nor is it where
    the reader was told to keep images without photos.

    Args:
        roster: of a split.
        config: with ``features``.
        entry: the reader and its arguments.
    """
    folder = imported_features(config)
    if folder:
        return with_sizes(roster, FeatureStore.open(folder))
    if entry.get("missing_photos") == "keep":
        return roster
    paths = sorted({sample.image_path for sample in roster.samples})
    broken = check_photos(paths, cache_path=Path(config.paths.cache) / "photos.json")
    return drop_photos(roster, broken) if broken else roster


def with_sizes(roster: Roster, store: FeatureStore) -> Roster:
    """The roster with sizes of photos from a store, where annotations with boxes have none.

    Args:
        roster: of images that may be in the store or not.
        store: of imported features.
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
