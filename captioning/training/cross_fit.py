"""Photo-caption similarity by heads trained on other folds of the same noisy dataset.

Heads trained on a wrong pair memorise it and score it as right. So the photos are divided into
folds, and each fold's pairs are scored by heads trained on the other folds only (cross-fitting,
with which Northcutt et al., 2021, find wrong labels).
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
from annotated_types import Ge
from torch import Tensor

from captioning.config.ranges import ArgumentsOf, Seed
from captioning.data.features.build import ensure_features
from captioning.data.features.store import FeatureStore
from captioning.data.roster import Roster, build_roster
from captioning.text.sentences import SentenceEncoder
from captioning.training.joint_heads import HeadsTraining, fit, read_pairs
from captioning.types import Sample
from captioning.vision.backbones import Backbone
from captioning.vision.joint_space import JointSpace, load_heads, save_heads

log = logging.getLogger(__name__)

_READ_AT_ONCE = 128  # photos


class CrossFit:
    """Cosines of photos and captions in joint spaces that were not trained on these pairs.

    The heads are trained at their first use and cached in files.

    Args:
        backbone: frozen network of the photos.
        sentences: frozen encoder of the captions.
        features: arguments of `captioning.data.features.build.ensure_features`.
        heads: arguments of `captioning.vision.joint_space.JointSpace`.
        training: settings as in the group ``training`` of ``configs/joint_space.yaml``.
        num_folds: number of folds, at least 2.
        seed: seed of the folds and the training.
        cache_folder: parent of all trained heads.

    Raises:
        ValueError: fewer than 2 folds.
    """

    opens_photos = True

    def __init__(
        self,
        *,
        backbone: Backbone,
        sentences: SentenceEncoder,
        features: Annotated[Mapping[str, Any], ArgumentsOf(ensure_features)],
        heads: Annotated[Mapping[str, Any], ArgumentsOf(JointSpace)],
        training: Annotated[Mapping[str, Any], ArgumentsOf(HeadsTraining)],
        num_folds: Annotated[int, Ge(2)],
        seed: Seed,
        cache_folder: str | Path,
    ) -> None:
        if num_folds < 2:
            raise ValueError(f"num_folds must be at least 2: got {num_folds}")
        self._backbone, self._sentences = backbone, sentences
        self._features, self._heads, self._training = dict(features), dict(heads), dict(training)
        self._num_folds, self._seed = num_folds, seed
        self._cache_folder = Path(cache_folder)
        self._spaces: dict[str, list[JointSpace]] = {}

    @torch.inference_mode()
    def __call__(self, roster: Roster, samples: Sequence[Sample]) -> Tensor:
        """Cosines ``(len(samples),)`` of the samples' current captions and photos.

        Args:
            roster: the dataset that the heads are trained on, once.
            samples: samples of the roster, with edited captions or photos or not.

        Raises:
            ValueError: the roster has fewer images than folds.
        """
        spaces = self._trained(roster)
        folds = self._folds(roster)
        store = self._store(samples)
        cosines = torch.empty(len(samples))
        for fold, heads in enumerate(spaces):
            positions = [i for i, sample in enumerate(samples) if folds[sample.image_id] == fold]
            for start in range(0, len(positions), _READ_AT_ONCE):
                block = positions[start : start + _READ_AT_ONCE]
                cosines[block] = self._cosines(
                    heads, store, [samples[position] for position in block]
                )
        return cosines

    def _cosines(self, heads: JointSpace, store: FeatureStore, samples: Sequence[Sample]) -> Tensor:
        paths = list({sample.image_path: None for sample in samples})
        place = {path: number for number, path in enumerate(paths)}
        photos = heads.embed_pooled(heads.pool(store.read(store.positions(paths))[0]))
        captions = heads.embed_sentences(self._sentences.embed_texts([s.caption for s in samples]))
        return (photos[[place[sample.image_path] for sample in samples]] * captions).sum(1)

    def _store(self, samples: Sequence[Sample]) -> FeatureStore:
        paths = list({sample.image_path: None for sample in samples})
        return ensure_features(paths, backbone=self._backbone, **self._features)

    def _folds(self, roster: Roster) -> dict[str, int]:
        """Assign each image, with all of its captions, to a fold."""
        images = list(roster.rows_by_image)
        if len(images) < self._num_folds:
            raise ValueError(
                f"{roster.name}: {len(images)} images cannot be dealt into {self._num_folds} folds"
            )
        generator = torch.Generator().manual_seed(self._seed)
        order = torch.randperm(len(images), generator=generator)
        return {images[k]: i % self._num_folds for i, k in enumerate(order.tolist())}

    def _trained(self, roster: Roster) -> list[JointSpace]:
        """For each fold, the heads trained on all other folds, cached."""
        key = self._key(roster)
        if key not in self._spaces:
            files = [self._cache_folder / key / f"{k}.safetensors" for k in range(self._num_folds)]
            for fold, path in enumerate(files):
                if not path.is_file():
                    self._train(roster, fold, path)
            self._spaces[key] = [load_heads(path)[0] for path in files]
        return self._spaces[key]

    @property
    def _identities(self) -> dict[str, str]:
        """Identities of the networks that the heads are built on."""
        return {"backbone": self._backbone.identity, "sentences": self._sentences.identity}

    def _key(self, roster: Roster) -> str:
        # the fingerprint does not cover photos, and planted faults may change them
        photos = [str(sample.image_path) for sample in roster.samples]
        settings = {
            "roster": roster.fingerprint,
            "photos": hashlib.sha256("\n".join(photos).encode()).hexdigest(),
            **self._identities,
            "heads": self._heads,
            "training": self._training,
            "num_folds": self._num_folds,
            "seed": self._seed,
        }
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]

    def _train(self, roster: Roster, fold: int, path: Path) -> None:
        folds = self._folds(roster)
        in_fold = [folds[sample.image_id] == fold for sample in roster.samples]
        log.info(f"{roster.name}: training the joint space, fold {fold + 1}/{self._num_folds}")
        store = self._store(roster.samples)
        with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng():
            torch.manual_seed(self._seed)
            heads = JointSpace(
                image_size=store.dim, sentence_size=self._sentences.dim, **self._heads
            )
            parts = {"store": store, "sentences": self._sentences, "heads": heads}
            other_pairs = read_pairs(
                _by_photo(roster, [not own_pairs for own_pairs in in_fold]), **parts
            )
            own_pairs = read_pairs(_by_photo(roster, in_fold), **parts)
            settings = HeadsTraining.of(self._training)
            trained, _ = fit(heads, other_pairs, own_pairs, settings=settings, seed=self._seed)
        save_heads(trained, path, **self._identities)


def _by_photo(roster: Roster, selected: Sequence[bool]) -> Roster:
    """Group samples by the photo they show, which may be another image's if a fault was planted."""
    samples = [
        replace(sample, image_id=str(sample.image_path))
        for sample, is_selected in zip(roster.samples, selected, strict=True)
        if is_selected
    ]
    return build_roster(roster.name, samples)
