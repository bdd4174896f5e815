"""Predict masked words with networks that never saw the photo or its captions (cross-fitting).

A network trained on a wrong word memorises it. So the photos are divided into folds,
and each fold's words are judged by a network trained only on the other folds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from captioning.text.expected_words import ExpectedWords, PhotoFeatures
from captioning.text.judged_words import JudgedWords
from captioning.text.masked_words import PhotoEvidence, WordTraining, fit, new_network, predict
from captioning.text.word_groups import Group, Vocabulary


class CrossFittedWords:
    """Networks of all folds, trained at construction.

    Args:
        captions: training captions.
        photos: photo number of each caption.
        folds: fold number of each photo.
        features: features of the photos, or None.
        network: arguments of each `captioning.text.masked_words.MaskedWords`.
        training: training settings of each network.
        seed: seed of parameters, dropout and order.
        vocabulary: vocabulary of the captions with the rows to judge; None: build one.
        progress: function that receives the completed fraction of the training.
    """

    def __init__(
        self,
        *,
        captions: Sequence[str],
        photos: Sequence[int],
        folds: Sequence[int],
        features: PhotoFeatures | None = None,
        network: Mapping[str, Any],
        training: WordTraining,
        seed: int,
        vocabulary: Vocabulary | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        self._vocabulary = Vocabulary(captions) if vocabulary is None else vocabulary
        groups = self._vocabulary.groups(captions, photos)
        size = 0 if features is None else features.cells.shape[-1]
        self._networks = []
        self._expected: list[ExpectedWords] = []
        num_folds = max(folds) + 1

        def advance(done: float) -> None:
            if progress is not None:
                progress((len(self._networks) + done) / num_folds)

        for fold in range(num_folds):
            with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng():
                torch.manual_seed(seed + fold)
                model = new_network(self._vocabulary, photo_size=size, **network)
                others = [group for group in groups if folds[group.photo] != fold]
                evidence = None
                if features is not None:
                    self._expected.append(self._learn_expected(features, captions, others))
                    evidence = self._evidence(features, self._expected[-1].left_out)
                own = {"training": training, "seed": seed + fold, "progress": advance}
                fit(model, others, evidence, **own)
            self._networks.append(model)

    def judge(
        self,
        captions: Sequence[str],
        photos: Sequence[int],
        folds: Sequence[int],
        features: PhotoFeatures | None = None,
    ) -> JudgedWords:
        """Judge the words of captions in their current form; for arguments see the class."""
        groups = self._vocabulary.groups(captions, photos)
        parts = []
        for fold, network in enumerate(self._networks):
            own = [group for group in groups if folds[group.photo] == fold]
            evidence = None
            if features is not None:
                evidence = self._evidence(features, self._expected[fold](features.means))
            parts.append((own, predict(network, own, evidence)))
        owned = [group for own, _ in parts for group in own]
        log_probs = np.concatenate([values for _, values in parts])
        numbers = _joined([_caption_numbers(group) for group in owned])
        starts = _joined([group.starts for group in owned])
        order = np.lexsort((starts, numbers))
        return JudgedWords(
            captions=numbers[order],
            starts=starts[order],
            rows=_joined([group.rows for group in owned])[order],
            meanings=_joined([group.meanings for group in owned])[order],
            log_probs=log_probs[order],
        )

    def _learn_expected(
        self, features: PhotoFeatures, captions: Sequence[str], groups: Sequence[Group]
    ) -> ExpectedWords:
        """Fit the expected words of photos on groups of captions."""
        pairs = [(captions[number], group.photo) for group in groups for number in group.captions]
        texts, photos = [text for text, _ in pairs], [photo for _, photo in pairs]
        return ExpectedWords(features.means, texts, photos, self._vocabulary.thing_of)

    def _evidence(self, features: PhotoFeatures, expected: Tensor) -> PhotoEvidence:
        things = torch.from_numpy(self._vocabulary.things)
        return PhotoEvidence(cells=features.cells, expected=expected, things=things)


def _caption_numbers(group: Group) -> np.ndarray:
    """Return the caption number ``(Q,)`` of each row word."""
    return np.array(group.captions)[group.owner[group.keys[group.places]]]


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def deal_folds(images: Sequence[str], num_folds: int, seed: int) -> dict[str, int]:
    """Assign images to folds of about equal size.

    Raises:
        ValueError: fewer images than folds.
    """
    images = list(dict.fromkeys(images))
    if len(images) < num_folds:
        raise ValueError(
            f"{len(images)} images cannot be dealt into {num_folds} folds: lower num_folds"
        )
    order = np.random.default_rng(seed).permutation(len(images)).tolist()
    return {images[place]: number % num_folds for number, place in enumerate(order)}
