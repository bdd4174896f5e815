"""Check photos for faults, and find photos and captions that occur several times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from curation.check.evidence import Evidence, Floats, Scores, Worded
from curation.score.duplicate import copies

Bytes = NDArray[np.uint8]
_BITS = 64
_MAX_BITS = 6  # of copies that are looked for; the threshold decides
_ALIKE = 0.9  # cosine of photos below which equal hashes are chance
_LOOK_SIDE = 128  # longer side of what is measured of a photo's look
_LUMINANCE = np.array([0.241, 0.691, 0.068], dtype=np.float32)  # of the squared channels
_REACH = 9  # pixels of the blur that a photo's sharpness is measured by
_TILES = 4  # a side


def broken(evidence: Evidence) -> Scores:
    """1 for a photo that cannot be opened."""
    found = {
        row: (1.0, facts.problem) for row, facts in enumerate(evidence.facts_of) if facts.problem
    }
    return Scores.of(len(evidence.roster), found)


def tiny(evidence: Evidence) -> Scores:
    """Smaller side of the photo in pixels."""
    sides = [np.nan if f.problem else min(f.size) for f in evidence.facts_of]
    reasons = {row: f"{f.size[0]} x {f.size[1]} pixels" for row, f in enumerate(evidence.facts_of)}
    return Scores(values=np.array(sides, dtype=np.float32), reasons=reasons)


def blank(evidence: Evidence) -> Scores:
    """Contrast of the photo: the standard deviation of its grey values in [0, 255]."""
    values = [np.nan if f.problem else f.contrast for f in evidence.facts_of]
    reasons = {row: f"contrast {value:.1f} of 255" for row, value in enumerate(values)}
    return Scores(values=np.array(values, dtype=np.float32), reasons=reasons)


class _Small(NamedTuple):
    """A photo reduced to at most 128 pixels on each side.

    Attributes:
        sampled: some of its pixels, which have the colours of all.
        channels: three of ``(H, W)``, means of its pixels.
    """

    sampled: Image.Image
    channels: Sequence[Bytes]


def _brightness(seen: _Small, percentile: float) -> float:
    """Percentile of the photo's brightness, in [0, 1]."""
    squares = np.square(np.asarray(seen.sampled, dtype=np.float32))
    return float(np.sqrt(np.percentile(squares @ _LUMINANCE, percentile)) / 255)


def _information(seen: _Small) -> float:
    """Entropy, in bits, of the histogram of all channels; of one channel for grey photos."""
    is_grey = _spread(seen) < 1
    return float((seen.sampled.convert("L") if is_grey else seen.sampled).entropy())


def _spread(seen: _Small) -> float:
    """Largest difference between a pixel's channels; 0 for grey photos in any file format."""
    red, green, blue = seen.channels
    highest = np.maximum(np.maximum(red, green), blue)
    return float((highest - np.minimum(np.minimum(red, green), blue)).max())


def _blur(seen: _Small) -> float:
    """Blur in [0, 1]: the share of neighbour differences that remains after another blur.

    After Crete et al. (2007), independent of contrast. Taken from a grid of tiles: the sharpest
    tenth counts, so that a blurred background does not.
    """
    red, green, blue = seen.channels
    grey = (red.astype(np.float32) + green + blue) / 3
    if min(grey.shape) < 2 * _TILES or grey.std() < 1:
        return 0.0  # too little to tell
    steps, lost = np.zeros((_TILES, _TILES)), np.zeros((_TILES, _TILES))
    for turned in (False, True):
        lines = grey.T if turned else grey
        padded = np.pad(lines, ((0, 0), (_REACH // 2 + 1, _REACH // 2)), mode="edge")
        sums = np.cumsum(padded, axis=1)
        blurred = (sums[:, _REACH:] - sums[:, :-_REACH]) / _REACH
        own, left = np.abs(np.diff(lines)), np.abs(np.diff(blurred))
        for total, part in ((steps, own), (lost, np.maximum(own - left, 0))):
            total += _by_tile(part.T if turned else part)
    busy = steps >= steps.mean() / 2
    shares = np.sort(1 - lost[busy] / steps[busy])
    return float(shares[len(shares) // 10])


def _by_tile(values: Floats) -> Floats:
    """Sums ``(TILES, TILES)`` over a grid of tiles."""
    rows, columns = (np.arange(_TILES) * size // _TILES for size in values.shape)
    return np.add.reduceat(np.add.reduceat(values, rows, axis=0), columns, axis=1)


MEASURES: dict[str, Callable[[_Small], float]] = {
    "dark_photo": lambda seen: _brightness(seen, 99),
    "light_photo": lambda seen: _brightness(seen, 5),
    "blurry_photo": _blur,
    "low_information": _information,
    "grey_photo": _spread,
}


def measured(photo: Image.Image) -> dict[str, float]:
    """Compute the `MEASURES` of an RGB photo, which may be reduced in size already."""
    shrink = min(1.0, _LOOK_SIDE / max(photo.size))
    size = (max(1, round(photo.width * shrink)), max(1, round(photo.height * shrink)))
    reduced = photo if shrink == 1 else photo.resize(size, Image.Resampling.BOX)
    sampled = photo.resize(size, Image.Resampling.NEAREST)
    seen = _Small(sampled, [np.asarray(channel) for channel in reduced.split()])
    return {name: measure(seen) for name, measure in MEASURES.items()}


_WORDS = {
    "dark_photo": "99% of it are darker than {:.2f} of 1",
    "light_photo": "95% of it are brighter than {:.2f} of 1",
    "blurry_photo": "of its sharpest parts a blur leaves {:.2f} of 1",
    "low_information": "its colours tell {:.1f} bits",
    "grey_photo": "its colours differ from grey by at most {:.1f} of 255",
}


def looks(name: str) -> Callable[[Evidence], Scores]:
    """Build a check from one of the `MEASURES`."""

    def look(evidence: Evidence) -> Scores:
        values = [facts.measured.get(name, np.nan) for facts in evidence.facts_of]
        measured = np.array(values, dtype=np.float32)
        return Scores(values=measured, reasons=Worded(measured, _WORDS[name]))

    return look


def aspect(evidence: Evidence) -> Scores:
    """Aspect ratio of the photo: shorter side divided by longer side."""
    sides = [np.nan if f.problem else min(f.size) / max(f.size) for f in evidence.facts_of]
    values = np.array(sides, dtype=np.float32)
    return Scores(values=values, reasons=Worded(values, "shorter by longer side {:.2f}"))


def duplicates(evidence: Evidence) -> Scores:
    """Similarity in [0, 1] to the nearest earlier photo: equal bits of difference hashes.

    Photos without contrast have no hash worth comparing. Where photos were embedded, their cosine
    must be at least 0.9, too.
    """
    paths = list(evidence.photos)
    best = _nearest_earlier(evidence)
    found = {}
    for row, place in enumerate(evidence.photo_of.tolist()):
        likeness, other = best.get(place, (0.0, -1))
        if likeness > 0:
            found[row] = (likeness, f"a copy of {paths[other].name}")
    return Scores.of(len(evidence.roster), found)


def split_copies(evidence: Evidence) -> Scores:
    """Similarity in [0, 1] to the nearest earlier photo of another split, see `duplicates`.

    A copy of a copy counts, with the smallest likeness on the way.
    """
    splits, paths = evidence.splits, list(evidence.photos)
    best = _nearest_earlier(evidence) if len(set(splits.values())) > 1 else {}
    across: dict[int, tuple[float, int]] = {}
    for place, (likeness, other) in best.items():
        own, least = splits.get(paths[place]), likeness
        while own and splits.get(paths[other], own) == own and other in best:
            least, other = min(least, best[other][0]), best[other][1]
        if own and splits.get(paths[other], own) != own and least > 0:
            across[place] = (least, other)
    reasons = {
        place: f"{_in_split(paths[place], splits)} is a copy of {_in_split(paths[other], splits)}"
        for place, (_, other) in across.items()
    }
    found = {
        row: (across[place][0], reasons[place])
        for row, place in enumerate(evidence.photo_of.tolist())
        if place in across
    }
    return Scores.of(len(evidence.roster), found)


def _in_split(path: Path, splits: Mapping[Path, str]) -> str:
    return f"{path.parent.name}/{path.name} ({splits[path]})"


def _nearest_earlier(evidence: Evidence) -> dict[int, tuple[float, int]]:
    """Map a photo's position to the similarity and position of its nearest earlier photo."""
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
    return best


def _nearest(
    hashes: np.ndarray, places: list[int], vectors: np.ndarray | None
) -> dict[int, tuple[float, int]]:
    """Similarity and position of the nearest earlier photo, for the photos of a group.

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
    """Number of images with the same caption, ignoring case and punctuation."""
    images: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for sample, words in zip(evidence.roster.samples, evidence.words, strict=True):
        images[tuple(words) or (sample.caption,)].add(sample.image_id)
    counts = [
        len(images[tuple(words) or (sample.caption,)])
        for sample, words in zip(evidence.roster.samples, evidence.words, strict=True)
    ]
    reasons = {row: f"{count} photos have this caption" for row, count in enumerate(counts)}
    return Scores(values=np.array(counts, dtype=np.float32), reasons=reasons)
