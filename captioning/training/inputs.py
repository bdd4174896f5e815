"""What a run reads before it starts: rosters, planted faults, and features or a backbone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from captioning.data.features.build import ensure_features
from captioning.data.features.store import FeatureStore
from captioning.data.photos import check_photos, drop_photos
from captioning.data.roster import Roster, build_roster
from captioning.data.steps.added_captions import Mixture
from captioning.data.steps.detections import read_detections, with_detections
from captioning.data.steps.held_out import hold_out
from captioning.data.steps.shares import ADDED, share_of_photos, with_added
from captioning.text.lemmas import load_lemmas
from captioning.text.object_words import LEMMAS
from captioning.text.word_forms import forms_left
from captioning.training.parts import build_part
from captioning.types import UNPAIRED, Sample
from captioning.vision.backbones import Backbone

log = logging.getLogger(__name__)

# Keys of the group ``features`` that are no arguments of `ensure_features`.
NO_SETTINGS = ("name", "backbone", "imported", "encoder")


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Rosters with the pictures that go with them.

    Attributes:
        train, val, test: the samples.
        truth: planted faults of the training samples, kind by ``sample_id``.
        held_out_left: forms of held-out words in captions that are trained on all the same, with
            the number of captions; None: no class is held out.
        features: cached features of all photos; None: pixels through ``backbone``.
        extend_features: computes those of further photos, see `CaptionDataModule`; None for
            imported features.
        feature_size: D of the features or of the backbone.
        backbone: for end-to-end training.
        train_transform, eval_transform: pixels to tensors, for end-to-end training.
        texts: for training on captions alone, see `CaptionDataset`.
        lenders: captions that lend contexts and are not trained on, see `ContextIndex`.
    """

    train: Roster
    val: Roster
    test: Roster | None
    truth: dict[str, str] = field(default_factory=dict)
    held_out_left: dict[str, int] | None = None
    features: FeatureStore | None = None
    extend_features: Callable[[Mapping[Path, Sample]], FeatureStore] | None = None
    feature_size: int = 0
    backbone: nn.Module | None = None
    train_transform: Callable[..., Any] | None = None
    eval_transform: Callable[..., Any] | None = None
    texts: Callable[[Sequence[Sample]], dict[str, Tensor]] | None = None
    lenders: tuple[Sample, ...] = ()


def read_roster(config: DictConfig, split: str) -> Roster:
    """One split of ``config.data``, cut to ``limit_images`` and without broken photos.

    With ``config.detections`` its boxes are those that a detector has found.

    Raises:
        ValueError: the data set has no such split.
    """
    if config.data.get(split) is None:
        known = [key for key, value in config.data.items() if OmegaConf.is_dict(value)]
        raise ValueError(f"data.{split} is not set for {config.data.name}; its splits: {known}")
    roster = _limited(build_part(config.data[split]), config)
    roster = without_broken_photos(roster, config)
    _log_dropped(roster)
    if config.get("detections"):
        files = [read_detections(path)[1] for path in config.detections]
        roster = with_detections(roster, {k: v for found in files for k, v in found.items()})
    return roster


def _limited(roster: Roster, config: DictConfig) -> Roster:
    return roster if config.limit_images is None else first_images(roster, config.limit_images)


def _log_dropped(roster: Roster) -> None:
    for item in roster.dropped[:5]:
        log.info(f"{roster.name}: left out {item.item}: {item.rule}")
    if len(roster.dropped) > 5:
        log.info(f"{roster.name}: left out {len(roster.dropped)} items in all")


def read_train(config: DictConfig) -> tuple[Roster, dict[str, str]]:
    """What is trained on with its planted faults, and the kind of each by ``sample_id``.

    That is the training split of ``config.data``, or the captions of ``config.corpus``, without
    those of held-out classes, cut to ``config.train_share`` of its photos, and with the pairs in
    the folders of ``config.added``.
    """
    roster = read_corpus(config) if trains_on_text(config) else read_roster(config, "train")
    # configs of older runs lack what came later
    held = config.get("hold_out") or {}
    if held.get("classes"):
        settings = OmegaConf.to_container(held, resolve=True)
        settings.pop("name")
        roster = hold_out(roster, lemmatizer=load_lemmas(LEMMAS), **settings)
        log.info(f"{roster.name}: held out, {_number_held_out(roster)}")
    share, seed = config.get("train_share") or 1.0, config.get("split_seed", 0)
    roster = share_of_photos(roster, share, seed=seed)
    if config.get("added"):
        roster = with_added(
            roster,
            [Path(folder) for folder in config.added],
            share=config.get("added_share"),
            share_of=config.get("added_share_of"),
            whole=share == 1,
            seed=seed,
            mixture=build_part(config.mix) if config.get("mix") else Mixture(),
        )
    return build_part(config.noise.plant)(roster) if config.noise.get("plant") else (roster, {})


def _number_held_out(roster: Roster) -> str:
    """How many captions were left out, and how many samples wait for one."""
    left_out = sum(entry.rule.startswith("held out") for entry in roster.dropped)
    waiting = sum(sample.origin == UNPAIRED for sample in roster.samples)
    return f"{left_out} captions left out, {waiting} samples without caption"


def _held_out_left(roster: Roster, config: DictConfig) -> dict[str, int] | None:
    """What is left of the held-out classes in the data set's own captions; see `Inputs`."""
    classes = (config.get("hold_out") or {}).get("classes")
    if not classes:
        return None
    captions = (
        sample.caption
        for sample in roster.samples
        # neither what stands in for captions nor pairs made of these classes are left over
        if sample.origin != UNPAIRED and not sample.origin.startswith(ADDED)
    )
    left = forms_left(captions, classes, load_lemmas(LEMMAS))
    if left:
        said = ", ".join(f"{word} ({count})" for word, count in list(left.items())[:10])
        log.warning(
            f"{roster.name}: captions to train on still have held-out words, by number: {said}; "
            "to hold them out too, add them to hold_out.classes"
        )
    return left


def trains_on_text(config: DictConfig) -> bool:
    """Whether training sees captions alone."""
    return has_corpus(config, "corpus")


def has_corpus(config: DictConfig, group: str) -> bool:
    """Whether a key holds a corpus; configs of older runs lack keys that came later."""
    return bool((config.get(group) or {}).get("train"))


def read_corpus(config: DictConfig, group: str = "corpus") -> Roster:
    """The captions of ``config.corpus``, whose photos are not looked at.

    Args:
        config: with ``limit_images``.
        group: another key of it that holds a corpus.

    Raises:
        ValueError, OSError: the corpus cannot be read, or a share of it that makes no sense.
    """
    chosen = config[group]
    roster = _limited(build_part(chosen.train), config)
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


def without_broken_photos(roster: Roster, config: DictConfig) -> Roster:
    """The roster without photos that cannot be opened; each is recorded in ``dropped``."""
    paths = sorted({sample.image_path for sample in roster.samples})
    broken = check_photos(paths, cache_path=Path(config.paths.cache) / "photos.json")
    return drop_photos(roster, broken) if broken else roster


def first_images(roster: Roster, number: int) -> Roster:
    """The captions of the first ``number`` images."""
    kept = set(list(roster.rows_by_image)[:number])
    samples = [sample for sample in roster.samples if sample.image_id in kept]
    return build_roster(roster.name, samples, roster.dropped)


def load_inputs(config: DictConfig, *, only: Roster | None = None) -> Inputs:
    """Read everything that ``config`` names.

    Args:
        config: of the run.
        only: for evaluation: this roster stands for all splits, and no faults are planted.
    """
    truth: dict[str, str] = {}
    left, lenders = None, ()
    if only is not None:
        rosters: tuple[Roster, Roster, Roster | None] = (only, only, only)
    else:
        train, truth = read_train(config)
        left, lenders = _held_out_left(train, config), _lenders(train, config)
        test = read_roster(config, "test") if config.data.get("test") else None
        rosters = (train, read_roster(config, "val"), test)
    inputs = Inputs(
        train=rosters[0],
        val=rosters[1],
        test=rosters[2],
        truth=truth,
        held_out_left=left,
        lenders=lenders,
    )
    pictured = rosters
    if only is None and trains_on_text(config):
        inputs, pictured = replace(inputs, texts=_texts(config)), rosters[1:]
    return _with_pictures(config, inputs, [one for one in pictured if one is not None])


def _lenders(train: Roster, config: DictConfig) -> tuple[Sample, ...]:
    """Captions of the photos that ``train_share`` leaves out, where contexts come of all photos."""
    if not config.model.get("contexts_of_all"):
        return ()
    whole, _ = read_train(OmegaConf.merge(config, {"train_share": None, "added": []}))
    return tuple(one for one in whole.samples if one.image_id not in train.rows_by_image)


def _texts(config: DictConfig) -> Callable[[Sequence[Sample]], dict[str, Tensor]]:
    """What the model reads of captions alone."""
    if not config.model.get("texts"):
        raise ValueError(
            f"corpus={config.corpus.name} is of captions without photos, from which "
            f"model={config.model.name} cannot learn: choose model=viecap or corpus=none"
        )
    return build_part(config.model.texts)


def _with_pictures(config: DictConfig, inputs: Inputs, rosters: list[Roster]) -> Inputs:
    chosen = config.features
    if chosen.get("imported"):
        store = FeatureStore.open(chosen.imported)
        return replace(inputs, features=store, feature_size=store.dim)
    backbone = build_part(chosen.backbone)
    if chosen.get("kind") is None:
        return replace(
            inputs,
            backbone=backbone,
            feature_size=backbone.dim,
            train_transform=build_part(chosen.train_transform, backbone=backbone),
            eval_transform=build_part(chosen.eval_transform, backbone=backbone),
        )
    samples = {s.image_path: s for roster in rosters for s in roster.samples}
    store = cached_features(chosen, backbone, samples)
    # no bars: they would meet those of the training under way
    extend = partial(cached_features, chosen, backbone, progress=False)
    return replace(inputs, features=store, extend_features=extend, feature_size=store.dim)


def cached_features(
    chosen: DictConfig,
    backbone: Backbone,
    samples: Mapping[Path, Sample],
    *,
    progress: bool = True,
) -> FeatureStore:
    """Features of photos, computed where they are missing.

    Args:
        chosen: the config group ``features``.
        backbone: built from it.
        samples: a sample of each photo, for its boxes.
        progress: show how far it is.
    """
    boxes = None
    if chosen.kind == "regions":
        boxes = [[region.box for region in sample.regions] for sample in samples.values()]
    settings = {k: v for k, v in chosen.items() if k not in NO_SETTINGS}
    return ensure_features(
        list(samples), backbone=backbone, boxes=boxes, progress=progress, **settings
    )
