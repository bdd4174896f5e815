"""Decide which words of a row exclude each other: if one is true of a thing, the other is false.

A row holds words that can replace one another, but two may both be right of one thing: synonyms
(*coat*, *jacket*), broader words (*bird*, *duck*), neighbours on a scale (*orange*, *red*), ages
(*girl*, *woman*), and things that appear together in a photo (*tree*, *fence*). Such words
are not rivals. A table lists them, and captions add more: words that captions of one photo
use for each other far more often than other words of their row are not rivals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations, permutations

import numpy as np

from captioning.text.row_tables import WORD, RowTable

# Words on one line may all be true of one thing.
_ALIKE = """
    red orange
    red pink
    red purple
    red brown
    orange yellow
    orange brown
    orange pink
    yellow green
    yellow brown
    yellow white
    green blue
    green gray
    green brown
    green black
    blue purple
    blue gray
    blue black
    purple pink
    purple black
    pink white
    brown black gray
    brown white gray
    black gray

    bird duck

    bicycle motorcycle scooter car bus truck tractor wagon train
    car skateboard
    boat kayak
    airplane helicopter
    sled wagon
    shirt jacket coat sweater dress vest pants shorts skirt suit uniform
    hat helmet cap scarf glasses sunglasses headband
    ball balloon
    ball stick rope umbrella
    football soccer rugby
    soccer volleyball
    sandwich hamburger
    table chair couch bed bench desk
    beach field mountain forest park pool lake ocean river yard
    street sidewalk field mountain forest park pool lake ocean river yard restaurant
    kitchen restaurant office
    restaurant beach field mountain forest park pool lake ocean river yard
    snow ice water grass
    water mud sand grass dirt
    tree rock bush fence bridge tower wall pole building
    guitar drum piano
    drum trumpet violin
    cup bottle plate bowl knife fork spoon
    phone laptop camera television keyboard clock
    mouth head hand back shoulder neck

    man boy
    woman girl
    young old
"""
LEAST_SHARED = 0.1  # of how often one word is said twice of a photo: from here on no rivals
_LEAST_TIMES = 5  # pairs of captions that use the one and the other
_OVER_ROW = 4.0  # times as often as the row's other pairs: in a set with many faults all pairs meet


def exclusive(
    table: RowTable, captions: Sequence[str] = (), photos: Sequence[int] = ()
) -> np.ndarray:
    """Return which meanings of each row exclude each other, ``(W, K, K) bool``; False in padding.

    Args:
        table: the rows.
        captions: ``N`` texts that show which words replace each other; may be empty.
        photos: photo number of each caption.
    """
    by_row, thing_of = table.things
    width = max(map(len, by_row))
    alike = _alike(thing_of) | _used_for_each_other(by_row, thing_of, captions, photos)
    rivals = np.zeros((len(by_row), width, width), dtype=bool)
    for row, things in enumerate(by_row):
        for (one, first), (other, second) in permutations(enumerate(things), 2):
            rivals[row, one, other] = first != second and frozenset((first, second)) not in alike
    return rivals


def are_rivals(table: RowTable, first: str, second: str) -> bool:
    """Whether two words of one row exclude each other, by the table alone."""
    thing_of = table.things[1]
    one, other = thing_of.get(first.lower()), thing_of.get(second.lower())
    together = any(one in row and other in row for row in table.things[0])
    return together and one != other and frozenset((one, other)) not in _alike(thing_of)


@lru_cache(maxsize=4096)  # it is asked of every word in doubt
def words_alike(table: RowTable, word: str) -> frozenset[str]:
    """Return a word, its synonyms, and words that may be true of the same thing."""
    thing_of = table.things[1]
    thing = thing_of.get(word.lower())
    alike = _alike(thing_of)
    return frozenset(
        other
        for other, number in thing_of.items()
        if number == thing or frozenset((thing, number)) in alike
    ) | {word.lower()}


def _alike(thing_of: Mapping[str, int]) -> set[frozenset[int]]:
    """Return pairs of things that the table above lists as compatible."""
    pairs = set()
    for line in _ALIKE.split("\n"):
        things = [thing_of[word] for word in line.split() if word in thing_of]
        pairs |= {frozenset((one, other)) for one in things for other in things if one != other}
    return pairs


def _used_for_each_other(
    by_row: Sequence[Sequence[int]],
    thing_of: Mapping[str, int],
    captions: Sequence[str],
    photos: Sequence[int],
) -> set[frozenset[int]]:
    """Return pairs of a row's things that captions of one photo use in place of each other."""
    said: dict[int, list[set[int]]] = {}
    for caption, photo in zip(captions, photos, strict=True):
        words = {word.lower() for word in WORD.findall(caption)}
        said.setdefault(photo, []).append({thing_of[word] for word in words if word in thing_of})
    again: Counter[int] = Counter()
    shared: Counter[frozenset[int]] = Counter()
    for own in said.values():
        counts = Counter(thing for things in own for thing in things)
        again.update({thing: number * (number - 1) for thing, number in counts.items()})
        for one, other in combinations(counts, 2):
            both = sum(one in things and other in things for things in own)
            shared[frozenset((one, other))] += counts[one] * counts[other] - both
    alike: set[frozenset[int]] = set()
    for row in set(map(tuple, by_row)):
        shares = {
            pair: shared[pair] / np.sqrt(again[one] * again[other])
            for one, other in combinations(row, 2)
            if again[one] and again[other] and (pair := frozenset((one, other)))
        }
        least = max(LEAST_SHARED, _OVER_ROW * float(np.median([*shares.values(), 0.0])))
        alike |= {p for p, share in shares.items() if share >= least and shared[p] >= _LEAST_TIMES}
    return alike
