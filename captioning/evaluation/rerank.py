"""Choice among a run's captions of an image: consensus with the captions of similar photos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from captioning.config.ranges import PositiveInt
from captioning.data.batches.pictures import find_positions
from captioning.data.features.store import FeatureStore
from captioning.data.roster import Roster
from captioning.metrics.consensus import TrainingImages, consensus_scores
from captioning.metrics.tokenizer import tokenize_python
from captioning.types import Prediction

_BLOCK = 128  # photos whose features are in memory at once


def rerank_by_consensus(
    predictions: Sequence[Sequence[Prediction]],
    *,
    photos: Roster,
    train: Roster,
    store: FeatureStore,
    num_neighbours: PositiveInt = 60,
    num_closest: PositiveInt | None = None,
    variant: Literal["CIDEr-D", "CIDEr"] = "CIDEr-D",
) -> list[list[Prediction]]:
    """Captions of each image by falling consensus; equal ones in their order.

    Args:
        predictions: captions of each image.
        photos: the images that they are of.
        train: the images whose captions are compared with; none of ``photos`` among them.
        store: features of all these photos; their means over regions decide which are similar.
        num_neighbours, num_closest, variant: see `captioning.metrics.consensus.consensus_scores`.

    Returns:
        The same captions; ``score`` is the consensus, in [0, 10].

    Raises:
        ValueError: fewer training images than neighbours.
    """
    check_neighbours(num_neighbours, train)
    context_sources = list(train.rows_by_image)
    references = train.references()
    captions = [tokenize_python(references[image_id]) for image_id in context_sources]
    training = TrainingImages.prepare(captions, mean_features(store, train, context_sources))
    ids = [group[0].image_id for group in predictions]
    scores = consensus_scores(
        {group[0].image_id: tokenize_python([p.caption for p in group]) for group in predictions},
        mean_features(store, photos, ids),
        training,
        num_neighbours=num_neighbours,
        num_closest=num_closest,
        variant=variant,
    )
    ranked = []
    for group in predictions:
        scored = zip(group, scores[group[0].image_id], strict=True)
        scored = [replace(prediction, score=score) for prediction, score in scored]
        ranked.append(sorted(scored, key=lambda prediction: -prediction.score))
    return ranked


def check_neighbours(number: int, train: Roster) -> None:
    """Refuse more neighbours than there are training images; asked before captions are made.

    Raises:
        ValueError: too many.
    """
    if len(train.rows_by_image) < number:
        raise ValueError(
            f"rerank.num_neighbours={number}: {train.name} has only {len(train.rows_by_image)} "
            "photos to compare captions with; give a smaller number"
        )


def mean_features(
    store: FeatureStore, roster: Roster, image_ids: Sequence[str]
) -> NDArray[np.float32]:
    """Means ``(I, D)`` over the regions of images, in the order of the ids."""
    samples = [roster.samples[roster.rows_by_image[image_id][0]] for image_id in image_ids]
    positions = find_positions(store, samples)
    means = []
    for start in range(0, len(positions), _BLOCK):
        regions, mask = store.read(positions[start : start + _BLOCK])
        total = regions.float().sum(1)
        count = regions.shape[1] if mask is None else mask.sum(1, keepdim=True).clamp(min=1)
        means.append((total / count).numpy())
    return np.concatenate(means)
