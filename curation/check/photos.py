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
    hash_of = dict(zip(usable, hashes, strict=True))
    for places in groups.values():
        values = np.array([hash_of[place] for place in places], dtype=np.uint64)
        best |= _nearest(values, places, evidence.photo_vectors)
    found = {}
    for row, place in enumerate(evidence.photo_of.tolist()):
        likeness, other = best.get(place, (0.0, -1))
        if likeness > 0:
            found[row] = (likeness, f"a copy of {paths[other].name}")
    return Scores.of(len(evidence.roster), found)


def _nearest(
    hashes: np.ndarray, places: list[int], vectors: np.ndarray | None
) -> dict[int, tuple[float, int]]:
    """Likeness of the photos of a group to the most alike of the earlier ones, and its place.

    Of equally alike photos it is the first.

    Args:
        hashes: ``(G,) uint64`` of the group.
        places: G, of its photos.
        vectors: ``(P, D)`` of all photos; None where none were embedded.
    """
    own = None if vectors is None else vectors[places]
    first: dict[int, int] = {}  # number of the first photo of each hash
    nearest: dict[int, tuple[float, int]] = {}
    for number, (place, value) in enumerate(zip(places, hashes.tolist(), strict=True)):
        other = first.setdefault(value, number)
        if other < number and (own is None or own[other] @ own[number] >= _ALIKE):
            nearest[place] = (1.0, places[other])  # none is more alike: others are not looked at
        elif number:
            likeness = 1 - np.bitwise_count(hashes[:number] ^ hashes[number]) / _BITS
            if own is not None:
                likeness = np.where(own[:number] @ own[number] >= _ALIKE, likeness, 0)
            best = int(likeness.argmax())
            nearest[place] = (float(likeness[best]), places[best])
    return nearest


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
