"""Rerank a run's captions of an image by consensus with captions of similar photos.

Devlin et al. (2015) and Mao et al. (2015): a sample's score is its mean CIDEr-D to the captions of
the training images whose features are nearest to the image's. No caption of the image itself is
used, so the choice needs no references; `captioning.metrics.diversity.select_best` takes the best
1, or the best 5 whose diversity papers report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from captioning.config.ranges import PositiveInt
from captioning.data.batches.pictures import find_positions
from captioning.data.features.store import FeatureStore
from captioning.data.roster import Roster
from captioning.metrics.cider import (
    CaptionVectors,
    CiderReferences,
    CiderStatistics,
    Floats,
    Ints,
    count_ngrams,
    number_images,
    ranges,
)
from captioning.metrics.diversity import check_texts
from captioning.metrics.tokenizer import tokenize_python
from captioning.types import Prediction

_BLOCK = 128  # photos whose features are in memory at once
_DIGITS = 6  # of cosines: float32 products are not the same to the last bit in every place
_MAX_CELLS = 500_000  # pairs of sample and neighbour's caption at once: some 200 MB

Features = NDArray[np.floating]


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
    """Sort captions of each image by falling consensus; ties keep their order.

    Args:
        predictions: captions of each image.
        photos: the captioned images.
        train: training images to compare with; they must not include ``photos``.
        store: features of all photos; their means over regions define similarity.
        num_neighbours, num_closest, variant: see `captioning.evaluation.rerank.consensus_scores`.

    Returns:
        The same captions; ``score`` is the consensus, in [0, 10].

    Raises:
        ValueError: there are fewer training images than neighbours.
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
    """Raise an error for more neighbours than training images, before captions are generated.

    Raises:
        ValueError: there are too few training images.
    """
    if len(train.rows_by_image) < number:
        raise ValueError(
            f"rerank.num_neighbours={number}: {train.name} has only {len(train.rows_by_image)} "
            "photos to compare captions with; give a smaller number"
        )


def mean_features(
    store: FeatureStore, roster: Roster, image_ids: Sequence[str]
) -> NDArray[np.float32]:
    """Mean features over the regions of images ``(I, D)``, in the order of the ids."""
    samples = [roster.samples[roster.rows_by_image[image_id][0]] for image_id in image_ids]
    positions = find_positions(store, samples)
    means = []
    for start in range(0, len(positions), _BLOCK):
        regions, mask = store.read(positions[start : start + _BLOCK])
        total = regions.float().sum(1)
        count = regions.shape[1] if mask is None else mask.sum(1, keepdim=True).clamp(min=1)
        means.append((total / count).numpy())
    return np.concatenate(means)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingImages:
    """Training images prepared for the search for neighbours.

    Attributes:
        features: ``(N, D) float32`` of unit length (or 0).
        vectors: tf-idf vectors of all their captions, image after image.
        starts: ``(N + 1,)`` index of each image's first caption.
        statistics: document frequencies that weight the vectors.
    """

    features: NDArray[np.float32]
    vectors: CaptionVectors
    starts: Ints
    statistics: CiderStatistics

    @classmethod
    def prepare(
        cls,
        captions: Sequence[Sequence[str]],
        features: Features,
        statistics: CiderStatistics | None = None,
    ) -> Self:
        """Prepare tokenized captions and ``(N, D)`` features of the same images.

        Without statistics the document frequencies are computed from these captions.

        Raises:
            ValueError: the numbers of images differ, an image has no captions, or features are not
                finite.
        """
        if len(captions) != len(features):
            raise ValueError(
                f"every image must have captions and a feature: got {len(captions)} images with "
                f"captions and {len(features)} features"
            )
        image = number_images(captions)
        counts = count_ngrams(list(chain.from_iterable(captions)))
        if statistics is None:
            statistics = CiderStatistics.of_counts(counts, image, source="the training captions")
        return cls(
            features=unit_length(features),
            vectors=CaptionVectors.build(counts, statistics),
            starts=np.append(0, np.cumsum(np.bincount(image))),
            statistics=statistics,
        )


def unit_length(features: Features) -> NDArray[np.float32]:
    """Features ``(N, D)`` scaled to unit length; features of length 0 stay 0.

    Raises:
        ValueError: the shape is wrong, or values are not finite.
    """
    values = np.asarray(features, dtype=np.float32)
    if values.ndim != 2 or not np.isfinite(values).all():
        raise ValueError(f"features must be (N, D) and finite: got shape {values.shape}")
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    return np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0)


def nearest_images(
    queries: Features, training: NDArray[np.float32], *, k: int, block: int = 512
) -> Ints:
    """The ``k`` training images of highest cosine similarity, nearest first.

    Similarities are rounded to 6 digits and ties keep the images' order, so that duplicate photos
    cannot change places.

    Args:
        queries: ``(Q, D)`` features.
        training: ``(N, D) float32`` of unit length.
        k: at most N.
        block: queries compared at once; ``block × N × 4`` bytes of memory.

    Returns:
        ``(Q, k)`` indices of training images.

    Raises:
        ValueError: the features' widths differ, or ``k`` is outside [1, N].
    """
    units = unit_length(queries)
    if units.shape[1] != training.shape[1] or not 1 <= k <= len(training):
        raise ValueError(
            f"queries must be as wide as training features and k in [1, {len(training)}]: got "
            f"{units.shape}, {training.shape} and k {k}"
        )
    nearest = [_nearest(units[i : i + block] @ training.T, k) for i in range(0, len(units), block)]
    return np.concatenate(nearest) if nearest else np.zeros((0, k), dtype=np.int64)


def _nearest(similarity: NDArray[np.float32], k: int) -> Ints:
    rounded = np.round(similarity, _DIGITS)
    border = np.partition(rounded, rounded.shape[1] - k, axis=1)[:, -k]
    row, column = np.nonzero(rounded >= border[:, None])  # all that tie with the k-th as well
    order = np.lexsort((column, -rounded[row, column], row))
    starts = np.searchsorted(row, np.arange(len(rounded)))
    return column[order][starts[:, None] + np.arange(k)]


def consensus_scores(
    candidates: Mapping[str, Sequence[str]],
    features: Features,
    training: TrainingImages,
    *,
    num_neighbours: int = 60,
    num_closest: int | None = None,
    variant: str = "CIDEr-D",
) -> dict[str, list[float]]:
    """Mean CIDEr-D of each caption with the captions of its image's nearest training images.

    Args:
        candidates: tokenized captions of each image, any number.
        features: ``(I, D)`` of the images in the same order. No image may be a training image.
        training: training images in which to search for neighbours.
        num_neighbours: 60 in Mao et al.'s code.
        num_closest: number of most similar captions to average over, so that odd neighbours do no
            harm (125 in Mao et al.'s code); None: all.
        variant: ``"CIDEr-D"`` or ``"CIDEr"``.

    Returns:
        ``{image_id: scores}`` in [0, 10], in the order of the captions.

    Raises:
        TypeError: the captions of an image are not a list of texts.
        ValueError: unequal numbers of images, an image without captions, a number out of range.
    """
    check_texts(candidates, "candidates")
    if len(candidates) != len(features) or (num_closest is not None and num_closest < 1):
        raise ValueError(
            f"every image must have a feature, and num_closest must be at least 1: got "
            f"{len(candidates)} images, {len(features)} features, num_closest {num_closest}"
        )
    neighbours = nearest_images(features, training.features, k=num_neighbours)
    ids, groups = list(candidates), list(candidates.values())
    scores: dict[str, list[float]] = {}
    for rows in _blocks(groups, neighbours, training.starts):
        samples = groups[rows.start : rows.stop]
        image = number_images(samples)
        similarities = _score(samples, image, neighbours[rows.start : rows.stop], training, variant)
        means = _means(similarities, num_closest)
        parts = np.split(means, np.cumsum(np.bincount(image))[:-1])
        scores |= zip(ids[rows.start : rows.stop], (part.tolist() for part in parts), strict=True)
    return scores


def _score(
    samples: Sequence[Sequence[str]],
    image: Ints,
    neighbours: Ints,
    training: TrainingImages,
    variant: str,
) -> tuple[Floats, Ints]:
    """Similarities ``(B, R)`` of captions to neighbours' captions, and the number per neighbour."""
    starts = training.starts[neighbours]
    sizes = training.starts[neighbours + 1] - starts
    captions = ranges(starts.ravel(), sizes.ravel())
    owner = np.repeat(np.arange(len(samples)), sizes.sum(1))
    references = CiderReferences.choose(training.vectors, captions, owner, training.statistics)
    counts = count_ngrams(list(chain.from_iterable(samples)))
    vectors = CaptionVectors.build(counts, training.statistics)
    return references.similarities(vectors, image, variant), references.num_references[image]


def _means(similarities_and_counts: tuple[Floats, Ints], num_closest: int | None) -> Floats:
    similarities, number = similarities_and_counts
    if num_closest is not None:
        similarities = -np.sort(-similarities, axis=1)[:, :num_closest]
        number = np.minimum(number, num_closest)
    return similarities.sum(1) / number


def _blocks(groups: Sequence[Sequence[str]], neighbours: Ints, starts: Ints) -> Iterator[range]:
    """Ranges of at least one image, each with a bounded number of pairs."""
    references = (starts[neighbours + 1] - starts[neighbours]).sum(1)
    first, cells = 0, 0
    for row, group in enumerate(groups):
        cells += len(group) * int(references[row])
        if cells > _MAX_CELLS and row > first:
            yield range(first, row)
            first, cells = row, len(group) * int(references[row])
    if groups:
        yield range(first, len(groups))
