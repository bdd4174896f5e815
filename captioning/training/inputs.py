"""What a run reads before it starts: rosters, and features or a backbone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from torch import Tensor, nn

from captioning.data.features.build import ensure_features
from captioning.data.features.store import FeatureStore
from captioning.data.roster import Roster
from captioning.data.steps.base import StepContext
from captioning.training.parts import build_part
from captioning.training.rosters import read_roster, read_train, trains_on_text
from captioning.types import Sample
from captioning.vision.backbones import Backbone

# Keys of the group ``features`` that are no arguments of `ensure_features`.
NO_SETTINGS = ("name", "backbone", "imported", "encoder")


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Rosters with the pictures that go with them.

    Attributes:
        train, val, test: the samples.
        steps: what the steps of the training data have left; None: there was no training data.
        features: cached features of all photos; None: pixels through ``backbone``.
        extend_features: computes those of further photos, see `CaptionDataModule`; None for
            imported features.
        feature_size: D of the features or of the backbone.
        backbone: for end-to-end training.
        train_transform, eval_transform: pixels to tensors, for end-to-end training.
        texts: for training on captions alone, see `CaptionDataset`.
    """

    train: Roster
    val: Roster
    test: Roster | None
    steps: StepContext | None = None
    features: FeatureStore | None = None
    extend_features: Callable[[Mapping[Path, Sample]], FeatureStore] | None = None
    feature_size: int = 0
    backbone: nn.Module | None = None
    train_transform: Callable[..., Any] | None = None
    eval_transform: Callable[..., Any] | None = None
    texts: Callable[[Sequence[Sample]], dict[str, Tensor]] | None = None


def load_inputs(config: DictConfig, *, only: Roster | None = None) -> Inputs:
    """Read everything that ``config`` names.

    Args:
        config: of the run.
        only: for evaluation: this roster stands for all splits, and no faults are planted.
    """
    steps = None
    if only is not None:
        rosters: tuple[Roster, Roster, Roster | None] = (only, only, only)
    else:
        train, steps = read_train(config)
        test = read_roster(config, "test") if config.data.get("test") else None
        rosters = (train, read_roster(config, "val"), test)
    inputs = Inputs(train=rosters[0], val=rosters[1], test=rosters[2], steps=steps)
    pictured = rosters
    if only is None and trains_on_text(config):
        inputs, pictured = replace(inputs, texts=_texts(config)), rosters[1:]
    return _with_pictures(config, inputs, [one for one in pictured if one is not None])


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
