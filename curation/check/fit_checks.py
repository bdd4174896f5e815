"""Check whether captions fit their photos, by the similarity of photo and text embeddings.

Vectors are centred on their means first: captions that suit every photo, and photos that suit every
caption, would be right and wrong for other reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curation.check.evidence import Evidence, Floats, Scores, by_content

_ROUNDS = 60
_NEWTON_STEPS = 8
_RIDGE = 1e-2
_FIRST_SHARE = 0.1
_SMALLEST_SHARE, _LARGEST_SHARE = 1e-4, 0.95
_CLIP = 30.0
Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """A fitted mixture of right and wrong pairs, estimated without labels or a trained threshold.

    The scores of the given pairs are a mixture: of right pairs, and of wrong ones, which score as
    pairs drawn at random do. The ratio of the two densities is taken as an exponential tilt,
    ``exp(a + b x)`` (Qin, 1999; Zou, Fine and Yandell, 2002), so that expectation and maximisation
    is a weighted logistic regression of given against random pairs. The share of wrong pairs comes
    out beside it.

    Attributes:
        share: share of wrong pairs, in [0, 1].
        separation: chance that a given pair scores above a random one (AUC), in [0, 1].
        weights: ``(F + 1,)`` of the features and of 1, the log-ratio of the densities.
        middle, scale: ``(F,)`` of the random pairs' features.
    """

    share: float
    separation: float
    weights: Values
    middle: Values
    scale: Values

    def log_ratio(self, features: Values) -> Values:
        """Log-density ratio ``(N,)`` of right to random pairs, for features ``(N, F)``."""
        scaled = (features - self.middle) / self.scale
        return np.clip(_with_one(scaled) @ self.weights, -_CLIP, _CLIP)

    def chance_wrong(self, features: Values) -> Values:
        """Probability ``(N,)`` in [0, 1] that a pair is wrong, for features ``(N, F)``."""
        right = (1 - self.share) * np.exp(self.log_ratio(features))
        return self.share / (self.share + right)


def fit_mixture(given: Values, random: Values) -> Mixture:
    """Fit a `Mixture` to given and random pairs of photo and caption.

    Args:
        given: ``(N, F)`` features of the pairs in question, higher for a better fit.
        random: ``(M, F)`` of pairs nearly all of which are wrong.
    """
    middle, scale = random.mean(0), random.std(0).clip(min=1e-6)
    inputs = _with_one((np.concatenate([given, random]) - middle) / scale)
    targets = np.concatenate([np.ones(len(given)), np.zeros(len(random))])
    right = np.full(len(given), 1 - _FIRST_SHARE)
    weights, share = np.zeros(inputs.shape[1]), _FIRST_SHARE
    for _ in range(_ROUNDS):
        balance = np.concatenate([right / right.sum(), np.full(len(random), 1 / len(random))])
        weights = _logistic(inputs, targets, balance * len(given), weights)
        ratio = np.exp(np.clip(inputs[: len(given)] @ weights, -_CLIP, _CLIP))
        right = (1 - share) * ratio / ((1 - share) * ratio + share)
        new = float(np.clip(1 - right.mean(), _SMALLEST_SHARE, _LARGEST_SHARE))
        if abs(new - share) < 1e-6:
            break
        share = new
    scores = inputs @ weights
    separation = _auc(scores[: len(given)], scores[len(given) :])
    return Mixture(share=share, separation=separation, weights=weights, middle=middle, scale=scale)


def _with_one(features: Values) -> Values:
    return np.concatenate([features, np.ones((len(features), 1))], axis=1)


def _logistic(inputs: Values, targets: Values, balance: Values, weights: Values) -> Values:
    """Fit a weighted logistic regression by Newton's method, starting at ``weights``."""
    ridge = np.full(len(weights), _RIDGE)
    ridge[-1] = 0
    for _ in range(_NEWTON_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(inputs @ weights, -_CLIP, _CLIP)))
        slope = inputs.T @ (balance * (targets - chance)) - ridge * weights
        curvature = (inputs * (balance * chance * (1 - chance))[:, None]).T @ inputs
        step = np.linalg.solve(curvature + np.diag(ridge + 1e-9), slope)
        weights = weights + step
        if np.abs(step).max() < 1e-7:
            break
    return weights


def _auc(higher: Values, lower: Values) -> float:
    order = np.argsort(np.concatenate([higher, lower]), kind="stable")
    ranks = np.empty(len(order))
    ranks[order] = np.arange(1, len(order) + 1)
    above = ranks[: len(higher)].sum() - len(higher) * (len(higher) + 1) / 2
    return float(above / (len(higher) * len(lower)))


MIN_IMAGES = 20  # with fewer, random pairs say too little
_WEAK = 0.7  # separation below which a space cannot judge these photos
_DRAWS = 4  # random photos for each caption
_NEAREST = 2  # sibling captions that count: an image may have several wrong ones
_PRICE = 1.0  # nats that each photo of a shifted run must bring
_SHORTEST_RUN = 3

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class _Pairs:
    """Vectors and rows needed to score any caption against any photo.

    Attributes:
        photos: ``(P, D)`` centred vectors of photos.
        captions: ``(N, D)`` centred vectors of captions.
        groups: rows of each usable image.
        photo: ``(G,)`` place of each group's photo.
        own: ``(N,)`` place of each caption's photo.
    """

    photos: Floats
    captions: Floats
    groups: list[Rows]
    photo: Rows
    own: Rows

    def likeness(self, rows: Rows, photos: Rows) -> Values:
        """Centred cosine similarities ``(len(rows),)`` of captions and photos."""
        return np.einsum("ij,ij->i", self.captions[rows], self.photos[photos]).astype(np.float64)

    def of_image(self, group: int, photo: int) -> float:
        """Mean similarity of an image's captions to a photo."""
        rows = self.groups[group]
        return float(self.likeness(rows, np.full(len(rows), photo)).mean())


@by_content
def caption_fit(evidence: Evidence) -> Scores:
    """Estimate the probability, in [0, 1], that a caption does not belong to its photo.

    Based on the similarity of caption and photo, and to the two most similar other captions of the
    photo. See `Mixture`.
    """
    pairs = _pairs(evidence)
    values = np.full(len(evidence.roster), np.nan, dtype=np.float32)
    if isinstance(pairs, str):
        return Scores(values=values, note=pairs)
    rng, notes = np.random.default_rng(evidence.seed), []
    reasons: dict[int, str] = {}
    for several in (True, False):
        groups = [g for g, rows in enumerate(pairs.groups) if (len(rows) > 1) == several]
        if len(groups) < MIN_IMAGES:
            continue
        given, random = _features(evidence, pairs, groups, several, rng)
        rows = np.concatenate([pairs.groups[group] for group in groups])
        mixture = fit_mixture(given, random)
        notes.append(_note(mixture, evidence.space, len(rows)))
        if mixture.separation < _WEAK:
            continue
        values[rows] = mixture.chance_wrong(given)
        reasons |= {
            row: _reason(features, mixture.middle)
            for row, features in zip(rows.tolist(), given.tolist(), strict=True)
        }
    return Scores(values=values, reasons=reasons, note="; ".join(notes))


def _reason(features: Sequence[float], random: Values) -> str:
    text = f"likeness to the photo {features[0]:.2f} (of random pairs {random[0]:.2f})"
    if len(features) > 1:
        text += f", to the photo's other captions {features[1]:.2f} ({random[1]:.2f})"
    return text


@by_content
def wrong_photo(evidence: Evidence) -> Scores:
    """Estimate the probability, in [0, 1], that none of a photo's captions belongs to the photo.

    Photos with several captions are scored by the captions' mean similarity.
    """
    pairs = _pairs(evidence)
    values = np.full(len(evidence.roster), np.nan, dtype=np.float32)
    if isinstance(pairs, str):
        return Scores(values=values, note=pairs)
    groups = [g for g, rows in enumerate(pairs.groups) if len(rows) > 1]
    if len(groups) < MIN_IMAGES:
        return Scores(values=values, note="needs photos with several captions")
    given, mixture = _image_mixture(evidence, pairs, groups)
    if mixture.separation < _WEAK:
        return Scores(values=values, note=_note(mixture, evidence.space, len(groups)))
    reasons = {}
    chances = mixture.chance_wrong(given).tolist()
    for group, chance, mean in zip(groups, chances, given[:, 0].tolist(), strict=True):
        values[pairs.groups[group]] = chance
        text = f"mean likeness of the photo's captions {mean:.2f}"
        reasons |= dict.fromkeys(pairs.groups[group].tolist(), text)
    return Scores(
        values=values, reasons=reasons, note=_note(mixture, evidence.space, len(groups), "photos")
    )


def shifted(evidence: Evidence) -> Scores:
    """Score, in nats, whether captions belong to the photo before or after their own photo.

    Scores runs of at least three photos in the order of the annotations: the sum of the log-ratios
    of the neighbour's likelihood to their own, less a price a photo.
    """
    pairs = _pairs(evidence)
    values = np.zeros(len(evidence.roster), dtype=np.float32)
    if isinstance(pairs, str):
        return Scores(values=np.full_like(values, np.nan), note=pairs)
    groups = list(range(len(pairs.groups)))
    given, mixture = _image_mixture(evidence, pairs, groups)
    if mixture.separation < _WEAK:
        return Scores(
            values=np.full_like(values, np.nan), note=_note(mixture, evidence.space, len(groups))
        )
    own = mixture.log_ratio(given)
    reasons: dict[int, str] = {}
    for step, name in ((1, "next"), (-1, "previous")):
        neighbours = np.array(
            [[pairs.of_image(group, pairs.photo[(group + step) % len(groups)])] for group in groups]
        )
        gains = mixture.log_ratio(neighbours) - own
        gains[-1 if step == 1 else 0] = -np.inf  # there is no neighbour
        for rows, total, count in _long_runs(gains - _PRICE, pairs.groups):
            better = rows[total > values[rows]]
            values[better] = total
            text = f"{count} photos in a row have captions that fit the {name} photo better"
            reasons |= dict.fromkeys(better.tolist(), text)
    return Scores(values=values, reasons=reasons)


def _long_runs(gains: Values, groups: Sequence[Rows]) -> Iterator[tuple[Rows, float, int]]:
    """Rows, sum and number of photos of each run with at least three photos."""
    for first, end, total in _runs(gains):
        if end - first >= _SHORTEST_RUN:
            yield np.concatenate(groups[first:end]), total, end - first


def _runs(gains: Values) -> list[tuple[int, int, float]]:
    """First, end and sum of each stretch with a maximal sum (Kadane), best stretch first."""
    runs: list[tuple[int, int, float]] = []
    start, total, best, end = 0, 0.0, 0.0, 0
    for place, gain in enumerate([*gains.tolist(), -np.inf]):
        if total <= 0:
            start, total, best, end = place, 0.0, 0.0, place
        total += gain
        if total > best:
            best, end = total, place + 1
        if total <= 0 or total < best - 10:  # the run is over, what follows is another
            if best > 0:
                runs.append((start, end, best))
            total = 0.0
    return runs


def _pairs(evidence: Evidence) -> _Pairs | str:
    """Centred vectors of the usable photos and captions, or the reason why no pair is usable."""
    if evidence.photo_vectors is None or evidence.caption_vectors is None:
        return "no space of photos and texts was given"
    good = np.all(np.isfinite(evidence.photo_vectors), axis=1)
    groups = [rows for rows in evidence.groups if good[evidence.photo_of[rows]].all()]
    if len(groups) < MIN_IMAGES:
        return f"needs at least {MIN_IMAGES} photos with captions"
    rows = np.concatenate(groups)
    photos = evidence.photo_vectors - evidence.photo_vectors[evidence.photo_of[rows]].mean(0)
    captions = evidence.caption_vectors - evidence.caption_vectors[rows].mean(0)
    first = np.array([group[0] for group in groups])
    return _Pairs(photos, captions, groups, evidence.photo_of[first], evidence.photo_of)


def _image_mixture(
    evidence: Evidence, pairs: _Pairs, groups: Sequence[int]
) -> tuple[Values, Mixture]:
    """Mean similarity ``(G, 1)`` of images' captions to their photos, and the fitted mixture."""
    rng = np.random.default_rng(evidence.seed)
    given = np.array(
        [
            [pairs.likeness(rows, pairs.own[rows]).mean()]
            for rows in (pairs.groups[g] for g in groups)
        ]
    )
    random = np.array(
        [
            [pairs.of_image(group, pairs.photo[_another(group, len(pairs.groups), rng)])]
            for group in groups
            for _ in range(_DRAWS)
        ]
    )
    return given, fit_mixture(given, random)


def _another(group: int, number: int, rng: np.random.Generator) -> int:
    """Draw a random group that differs from the given group."""
    return (group + 1 + int(rng.integers(number - 1))) % number


def _features(
    evidence: Evidence,
    pairs: _Pairs,
    groups: Sequence[int],
    several: bool,
    rng: np.random.Generator,
) -> tuple[Values, Values]:
    """Features ``(N, F)`` of captions with their own images, and ``(M, F)`` with random images."""
    rows = np.concatenate([pairs.groups[group] for group in groups])
    likeness = pairs.likeness(rows, pairs.own[rows])
    home = np.repeat(groups, [len(pairs.groups[group]) for group in groups])
    drawn_rows, drawn = [], []
    for row, group in zip(rows.tolist(), home.tolist(), strict=True):
        for _ in range(_DRAWS if not several else 1):
            other = groups[int(rng.integers(len(groups)))]
            if other != group:
                drawn_rows.append(row)
                drawn.append(other)
    random = pairs.likeness(np.array(drawn_rows), pairs.photo[drawn])
    if not several:
        return likeness[:, None], random[:, None]
    vectors = evidence.sentence_vectors
    if vectors is None:
        vectors = pairs.captions
    siblings = [
        _to_siblings(vectors, row, pairs.groups[group][pairs.groups[group] != row])
        for row, group in zip(rows.tolist(), home.tolist(), strict=True)
    ]
    strangers = [
        _to_siblings(vectors, row, np.delete(pairs.groups[g], rng.integers(len(pairs.groups[g]))))
        for row, g in zip(drawn_rows, drawn, strict=True)
    ]
    return (np.stack([likeness, np.array(siblings)], 1), np.stack([random, np.array(strangers)], 1))


def _to_siblings(vectors: Floats, row: int, others: Rows) -> float:
    cosines = np.sort(vectors[others] @ vectors[row])
    return float(cosines[-_NEAREST:].mean())


def _note(mixture: Mixture, space: str, count: int, what: str = "captions") -> str:
    if mixture.separation < _WEAK:
        return (
            f"{space} can hardly tell these {what} from random pairs (AUC "
            f"{mixture.separation:.2f}), so nothing is flagged; choose a better embedding space"
        )
    return (
        f"about {mixture.share:.1%} of {count:,} {what} are estimated to be wrong; {space} tells "
        f"given from random pairs with AUC {mixture.separation:.3f}"
    )
