"""Checks of the photos, and of captions and photos that come several times."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from curation.check.evidence import Evidence, Scores
from curation.score.duplicate import copies

_BITS = 64
_MAX_BITS = 6  # of copies that are looked for; the threshold decides
_ALIKE = 0.9  # cosine of photos below which equal hashes are chance


def broken(evidence: Evidence) -> Scores:
    """1 for a photo that cannot be opened."""
    found = {
        row: (1.0, facts.problem) for row, facts in enumerate(evidence.facts_of) if facts.problem
    }
    return Scores.of(len(evidence.roster), found)


def tiny(evidence: Evidence) -> Scores:
    """The smaller side of the photo in pixels."""
    sides = [np.nan if f.problem else min(f.size) for f in evidence.facts_of]
    reasons = {row: f"{f.size[0]} x {f.size[1]} pixels" for row, f in enumerate(evidence.facts_of)}
    return Scores(values=np.array(sides, dtype=np.float32), reasons=reasons)


def blank(evidence: Evidence) -> Scores:
    """Contrast of the photo: the standard deviation of its grey values, of 255."""
    values = [np.nan if f.problem else f.contrast for f in evidence.facts_of]
    reasons = {row: f"contrast {value:.1f} of 255" for row, value in enumerate(values)}
    return Scores(values=np.array(values, dtype=np.float32), reasons=reasons)


def duplicates(evidence: Evidence) -> Scores:
    """Likeness in [0, 1] to an earlier photo: equal bits of their difference hashes.

    Photos without contrast have no hash worth comparing. Where photos were embedded, their cosine
    must be at least 0.9, too.
    """
    paths = list(evidence.photos)
    usable = [p for p, f in enumerate(evidence.photos.values()) if not f.problem and f.hash]
    hashes = [evidence.photos[paths[place]].hash for place in usable]
    distinct = list(dict.fromkeys(hashes))
    linked = dict(zip(distinct, copies(distinct, _MAX_BITS), strict=True))
    groups: dict[int, list[int]] = defaultdict(list)
    for place, value in zip(usable, hashes, strict=True):
        groups[linked[value]].append(place)
    best: dict[int, tuple[float, int]] = {}
    for places in groups.values():
        for number, place in enumerate(places[1:], start=1):
            best[place] = _nearest(evidence, hashes_of(evidence, places), places, number)
    found = {}
    for row, place in enumerate(evidence.photo_of.tolist()):
        likeness, other = best.get(place, (0.0, -1))
        if likeness > 0:
            found[row] = (likeness, f"a copy of {paths[other].name}")
    return Scores.of(len(evidence.roster), found)


def hashes_of(evidence: Evidence, places: list[int]) -> np.ndarray:
    """``(len(places),) uint64`` hashes of photos."""
    facts = list(evidence.photos.values())
    return np.array([facts[place].hash for place in places], dtype=np.uint64)


def _nearest(
    evidence: Evidence, hashes: np.ndarray, places: list[int], number: int
) -> tuple[float, int]:
    """Likeness to the most alike of the earlier photos of a group, and its place."""
    differing = np.bitwise_count(hashes[:number] ^ hashes[number])
    likeness = 1 - differing / _BITS
    vectors = evidence.photo_vectors
    if vectors is not None:
        cosines = vectors[places[:number]] @ vectors[places[number]]
        likeness = np.where(cosines >= _ALIKE, likeness, 0)
    nearest = int(likeness.argmax())
    return float(likeness[nearest]), places[nearest]


def same_caption(evidence: Evidence) -> Scores:
    """Number of images that have the caption, whatever its case and punctuation."""
    images: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for sample, words in zip(evidence.roster.samples, evidence.words, strict=True):
        images[tuple(words) or (sample.caption,)].add(sample.image_id)
    counts = [
        len(images[tuple(words) or (sample.caption,)])
        for sample, words in zip(evidence.roster.samples, evidence.words, strict=True)
    ]
    reasons = {row: f"{count} photos have this caption" for row, count in enumerate(counts)}
    return Scores(values=np.array(counts, dtype=np.float32), reasons=reasons)
