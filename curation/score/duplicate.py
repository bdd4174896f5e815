"""Score captions that repeat another caption of the same photo, or of a copy of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from captioning.config.ranges import NonNegativeInt
from captioning.text.word_forms import words_of
from captioning.types import Sample
from captioning.vision.photo_keys import read_ahead
from captioning.vision.photos import load_rgb
from curation.base import Context, Score

_BITS = 64
_PHOTOS_AT_ONCE = 64


class Duplicate(Score):
    """Word overlap of a caption with an earlier one, from 0 (no common word) to 1 (same words).

    The other caption comes earlier in the roster and belongs to the same photo or a near-copy, so
    that one of two duplicates remains. Captions are compared by the words that they share over all
    their words (Jaccard, 1912).

    Args:
        max_bits: photos whose difference hashes differ in at most this many of 64 bits count as
            copies (resized, recompressed); 0: equal hashes only; null reads no photo and compares
            only the captions of each image.
        load: opens a photo.

    Raises:
        ValueError: ``max_bits`` outside [0, 15].
    """

    name = "likeness to an earlier caption of the photo"

    def __init__(
        self, *, max_bits: NonNegativeInt | None = 4, load: Callable[[Path], Image.Image] = load_rgb
    ) -> None:
        if max_bits is not None and not 0 <= max_bits <= 15:
            raise ValueError(
                f"max_bits must be 0 to 15, or null: got {max_bits}; photos that differ in more "
                f"bits are different photos"
            )
        self.max_bits, self._load = max_bits, load
        self._hashes: dict[Path, int] = {}

    @property
    def opens_photos(self) -> bool:
        """Whether photos are opened; False if only captions of one image are compared."""
        return self.max_bits is not None

    def scores(self, context: Context) -> Tensor:
        """Suspicion in [0, 1]; NaN for removed samples."""
        scores = torch.full((len(context.view.roster),), torch.nan)
        for samples in self._groups(list(context.live.values())):
            earlier: dict[frozenset[str], None] = {}  # each once: copies of a photo repeat many
            for sample in samples:
                bag = frozenset(words_of(sample.caption))
                likeness = [1.0] if bag in earlier else [_jaccard(bag, other) for other in earlier]
                scores[sample.row] = max(likeness, default=0.0)
                earlier[bag] = None
        return scores

    def _groups(self, samples: Sequence[Sample]) -> Iterable[list[Sample]]:
        """Groups of samples that show one photo or its copies, in roster order."""
        if self.max_bits is None:
            keys: dict[Path, object] = {}
        else:
            paths = list({sample.image_path: None for sample in samples})
            new = [path for path in paths if path not in self._hashes]
            for batch, hashes in read_ahead(new, _PHOTOS_AT_ONCE, self._hash):
                self._hashes |= zip(batch, hashes, strict=True)
            numbers = copies([self._hashes[path] for path in paths], self.max_bits)
            keys = dict(zip(paths, numbers, strict=True))
        groups: dict[object, list[Sample]] = defaultdict(list)
        for sample in samples:
            groups[keys.get(sample.image_path, sample.image_id)].append(sample)
        return groups.values()

    def _hash(self, path: Path) -> int:
        return difference_hash(self._load(path))


def difference_hash(image: Image.Image) -> int:
    """64-bit hash: whether brightness rises from each cell to the next, on a 9 x 8 grid.

    The hash stays (nearly) the same when a picture is resized or compressed again (dHash, Krawetz,
    2013).
    """
    grey = np.asarray(image.convert("L").resize((9, 8), Image.Resampling.BOX), dtype=np.int16)
    bits = (grey[:, 1:] > grey[:, :-1]).ravel()
    return int("".join("1" if bit else "0" for bit in bits), 2)


def copies(hashes: Sequence[int], max_bits: int) -> list[int]:
    """Number the groups of hashes linked by steps of at most ``max_bits`` differing bits.

    Two hashes that differ in at most k bits agree in one of k + 1 bands, so only those that share
    a band are compared, and equal ones only once.
    """
    distinct = list(dict.fromkeys(hashes))
    numbers = dict(zip(distinct, _linked(distinct, max_bits), strict=True))
    return [numbers[value] for value in hashes]


def _linked(hashes: Sequence[int], max_bits: int) -> list[int]:
    """Group numbers as in `copies`, for hashes without duplicates."""
    parent = list(range(len(hashes)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    edges = np.linspace(0, _BITS, max_bits + 2).round().astype(int).tolist()
    for low, high in pairwise(edges):
        mask = (1 << (high - low)) - 1
        band: dict[int, list[int]] = defaultdict(list)
        for number, value in enumerate(hashes):
            band[(value >> low) & mask].append(number)
        for members in band.values():
            _link(members, hashes, max_bits, parent, root)
    return [root(number) for number in range(len(hashes))]


def _link(
    members: Sequence[int],
    hashes: Sequence[int],
    max_bits: int,
    parent: list[int],
    root: Callable[[int], int],
) -> None:
    for place, member in enumerate(members):
        for other in members[:place]:
            if (hashes[member] ^ hashes[other]).bit_count() <= max_bits:
                parent[root(member)] = root(other)


def _jaccard(words: frozenset[str], other_words: frozenset[str]) -> float:
    return len(words & other_words) / len(words | other_words) if words | other_words else 1.0
