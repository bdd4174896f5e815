"""CutSwap's re-ranking: keep augmented pairs whose photo and caption are similar enough.

Sections 3.2.4 and 4.4.2 of the thesis (Hahn, 2022): pairs with a CLIP cosine (ViT-B/32) below .28
are discarded, and the best three of the others are kept. Another similarity has another scale, so
its threshold is estimated: from its values on augmented pairs, of which about every tenth was poor,
or, where nobody has judged such pairs, from real pairs against mismatched ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from captioning.interfaces import JointEmbedder

CLIP_THRESHOLD = 0.28
CLIP_SPACES = ("ViT-B-32/openai", "ViT-B-32-quickgelu/openai")
JOINT_SPACE, JOINT_SPACE_THRESHOLD = "joint-space", 0.352  # docs/cards/cutswap.md
KEEP = 3
POOR_SHARE = 0.1
CHUNK = 32  # pictures in memory at once


class AbstractPairScorer(ABC):
    """Scores how well photos and captions fit, for each pair.

    Attributes:
        space: names the scale: scores of two spaces must not be compared.
    """

    space: str

    @abstractmethod
    def scores(self, images: Sequence[Image.Image], captions: Sequence[str]) -> np.ndarray:
        """Scores ``(P,) float64`` of P pairs; higher is a better fit.

        Raises:
            ValueError: there is not exactly one caption for each image.
        """


class CosineScorer(AbstractPairScorer):
    """Cosine similarities in an encoder's space; repeated images and texts are embedded once.

    Args:
        encoder: CLIP, or the joint space.
    """

    def __init__(self, *, encoder: JointEmbedder) -> None:
        self._encoder = encoder
        self.space = encoder.space

    def scores(self, images: Sequence[Image.Image], captions: Sequence[str]) -> np.ndarray:
        """See `AbstractPairScorer`; scores are in [-1, 1]."""
        if len(images) != len(captions):
            raise ValueError(
                f"each image needs one caption: {len(captions)} captions for {len(images)} images"
            )
        if not images:
            return np.zeros(0)
        distinct = list({id(image): image for image in images}.values())
        row_of_image = {id(image): row for row, image in enumerate(distinct)}
        vectors = self._encoder.embed_photos(distinct)
        return self.scores_of_vectors(vectors[[row_of_image[id(i)] for i in images]], captions)

    def scores_of_vectors(self, vectors: Tensor, captions: Sequence[str]) -> np.ndarray:
        """Scores of embedded photos, ``(P, D) float32``, and of one caption for each photo."""
        texts = list(dict.fromkeys(captions))
        row_of = {text: row for row, text in enumerate(texts)}
        text_rows = self._encoder.embed_texts(texts)[[row_of[text] for text in captions]]
        return (vectors * text_rows).sum(1).double().numpy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Score below which pairs are discarded, and the origin of this threshold.

    Attributes:
        value: value on the scale of ``space``.
        space: space of the scores.
        reason: readable reason, also for cards.
        kept_matched: share of matching pairs at or above it; None where none were scored.
        kept_mismatched: share of mismatched pairs at or above it; None where none were scored.
    """

    value: float
    space: str
    reason: str
    kept_matched: float | None = None
    kept_mismatched: float | None = None


def clip_threshold(space: str) -> Threshold:
    """CLIP similarity threshold of the thesis, valid for CLIP only.

    Raises:
        ValueError: the space is not the thesis' CLIP.
    """
    if space not in CLIP_SPACES:
        raise ValueError(
            f"the threshold {CLIP_THRESHOLD} is valid only for {CLIP_SPACES[0]}: got {space}; "
            "estimate a threshold with separating_threshold or poor_share_threshold"
        )
    return Threshold(value=CLIP_THRESHOLD, space=space, reason="section 4.4.2 of the thesis")


def known_threshold(space: str) -> Threshold:
    """Known threshold of a space: of CLIP or of the joint space.

    Raises:
        ValueError: no threshold is known for the space.
    """
    if space != JOINT_SPACE:
        return clip_threshold(space)
    reason = "tells 300 real pairs of Flickr8k test from mismatched ones best"
    return Threshold(value=JOINT_SPACE_THRESHOLD, space=space, reason=reason)


def estimated_threshold(
    photos: Tensor,
    captions: Sequence[str],
    image_ids: Sequence[str],
    *,
    scorer: CosineScorer,
    seed: int,
) -> Threshold:
    """Threshold that separates real pairs from the same pairs with exchanged captions.

    Args:
        photos: embedded by the scorer's encoder, ``(P, D) float32``.
        captions, image_ids: captions and ids of the photos.
        scorer: scorer of pairs.
        seed: the exchange's seed.

    Raises:
        ValueError: see `mismatched_order`.
    """
    mismatched_rows = mismatched_order(image_ids, seed=seed)
    matched = scorer.scores_of_vectors(photos, captions)
    mismatched = scorer.scores_of_vectors(photos, [captions[n] for n in mismatched_rows])
    return separating_threshold(matched, mismatched, space=scorer.space)


def poor_share_threshold(
    scores: np.ndarray, *, space: str, poor_share: float = POOR_SHARE
) -> Threshold:
    """Score below which a given share of augmented pairs lies (section 4.4.2 derives .28).

    Args:
        scores: scores of the best pair of each augmentation.
        space: space of the scores.
        poor_share: share of the pairs that people judged poor, in (0, 1).

    Raises:
        ValueError: scores are missing or not finite, or the share is out of range.
    """
    if not 0 < poor_share < 1:
        raise ValueError(f"poor_share must be between 0 and 1: got {poor_share}")
    value = float(np.quantile(_check_finite(scores, "scores"), poor_share))
    return Threshold(value=value, space=space, reason=f"{poor_share:.0%} of augmented pairs below")


def separating_threshold(matched: np.ndarray, mismatched: np.ndarray, *, space: str) -> Threshold:
    """Score that best separates real pairs from mismatched pairs.

    It maximises the share of real pairs at or above it minus the share of mismatched ones (Youden's
    index). Among several such scores it is the lowest, which keeps most real pairs.

    Args:
        matched: scores of real pairs of photo and caption.
        mismatched: scores of photos with captions of other photos.
        space: space of the scores.

    Raises:
        ValueError: scores are missing or not finite.
    """
    good = np.sort(_check_finite(matched, "matched"))
    bad = np.sort(_check_finite(mismatched, "mismatched"))
    values = np.unique(np.concatenate([good, bad]))
    kept_good = 1 - np.searchsorted(good, values, side="left") / len(good)
    kept_bad = 1 - np.searchsorted(bad, values, side="left") / len(bad)
    best = int((kept_good - kept_bad).argmax())
    return Threshold(
        value=float(values[best]),
        space=space,
        reason=f"tells {len(good)} real pairs from {len(bad)} mismatched ones best",
        kept_matched=float(kept_good[best]),
        kept_mismatched=float(kept_bad[best]),
    )


def rank(scores: np.ndarray, *, threshold: float, keep: int = KEEP) -> tuple[int, ...]:
    """Positions of the pairs of one augmentation to keep, best first.

    The earlier of two pairs with the same score comes first; scores that are not finite are
    discarded.

    Args:
        scores: ``(P,)``.
        threshold: pairs below it are discarded.
        keep: maximum number of pairs to keep.

    Raises:
        ValueError: the scores have another shape, or ``keep`` is below 1.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or keep < 1:
        raise ValueError(f"scores must be (P,), keep at least 1: got {values.shape} and {keep}")
    order = np.argsort(-np.where(np.isfinite(values), values, -np.inf), kind="stable")
    selected = [int(i) for i in order if np.isfinite(values[i]) and values[i] >= threshold]
    return tuple(selected[:keep])


def mismatched_order(image_ids: Sequence[str], *, seed: int = 0) -> tuple[int, ...]:
    """For each photo, the position of a pair whose caption belongs to another photo.

    Args:
        image_ids: image ids of the pairs, in order.
        seed: the draw's seed.

    Raises:
        ValueError: there are fewer than two photos, or one photo is in over half of the pairs.
    """
    ids = np.asarray(image_ids)
    if len(set(image_ids)) < 2:
        raise ValueError("mismatched pairs need at least two different photos: got fewer photos")
    generator = np.random.default_rng(seed)
    # Sorted by photo and moved on by the largest group, every pair meets another photo's.
    order = generator.permutation(len(ids))
    order = order[np.argsort(ids[order], kind="stable")]
    _, counts = np.unique(ids, return_counts=True)
    moved = np.roll(order, -int(counts.max()))
    if (ids[order] == ids[moved]).any():
        raise ValueError("one photo is in over half of the pairs; give more photos")
    partners = np.empty(len(ids), dtype=np.int64)
    partners[order] = moved
    return tuple(partners.tolist())


class Ranker:
    """Keeps the best pairs of an augmentation.

    Args:
        scorer: scorer of pairs.
        threshold: threshold in the scorer's space; pairs below it are discarded.
        keep: maximum number of pairs to keep for each augmentation.

    Raises:
        ValueError: the threshold is of another space, or ``keep`` is below 1.
    """

    def __init__(self, *, scorer: AbstractPairScorer, threshold: Threshold, keep: int) -> None:
        if threshold.space != scorer.space:
            raise ValueError(
                f"the threshold was estimated in {threshold.space}, but the pairs are scored in "
                f"{scorer.space}; estimate a threshold in {scorer.space}"
            )
        if keep < 1:
            raise ValueError(f"keep must be at least 1: got {keep}")
        self._scorer, self.threshold, self.keep = scorer, threshold, keep

    def scores(self, pairs: Iterable[tuple[Image.Image, str]]) -> np.ndarray:
        """Scores ``(P,) float64``; images are read from ``pairs`` in small batches.

        One thread computes the scores, so that they do not depend on the number of processes.
        """
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            scores = [self._scorer.scores(*zip(*chunk, strict=True)) for chunk in _chunks(pairs)]
        finally:
            torch.set_num_threads(threads)
        return np.concatenate([np.zeros(0), *scores])

    def selected(self, scores: np.ndarray) -> tuple[int, ...]:
        """See `rank`."""
        return rank(scores, threshold=self.threshold.value, keep=self.keep)


def _chunks(pairs: Iterable[tuple[Image.Image, str]]) -> Iterator[list[tuple[Image.Image, str]]]:
    remaining = iter(pairs)
    while chunk := list(islice(remaining, CHUNK)):
        yield chunk


def _check_finite(scores: np.ndarray, name: str) -> np.ndarray:
    values = np.asarray(scores, dtype=np.float64).ravel()
    if not len(values) or not np.isfinite(values).all():
        raise ValueError(f"{name} must be at least one finite score: got {len(values)} values")
    return values


def cosine_ranker(
    build_encoder: Callable[[], JointEmbedder], *, threshold: Threshold, keep: int
) -> Ranker:
    """Build a ranker by cosine with its own encoder; picklable by name for other processes."""
    return Ranker(scorer=CosineScorer(encoder=build_encoder()), threshold=threshold, keep=keep)
