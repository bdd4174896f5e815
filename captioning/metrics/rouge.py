"""ROUGE-L (Lin, 2004) as in pycocoevalcap, with references prepared once.

The best precision and the best recall over an image's references, chosen independently, are
combined with beta = 1.2. The longest common subsequence needs one integer addition per word (Hyyro,
"Bit-parallel LCS-length computation revisited", 2004); bits stand for the reference's words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BETA = 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class RougeReference:
    """One reference: ``places`` maps words to position bits; ``length`` is in words."""

    places: Mapping[str, int]
    length: int


def prepare_rouge(references: Sequence[Sequence[str]]) -> list[list[RougeReference]]:
    """Index the words of tokenized references once, for many evaluations."""
    return [[_index(caption) for caption in captions] for captions in references]


def score_rouge(
    candidates: Sequence[str], references: Sequence[Sequence[RougeReference]]
) -> tuple[float, list[float]]:
    """Compute ROUGE-L of tokenized captions.

    Args:
        candidates: one caption per image.
        references: references of the same images in the same order.

    Returns:
        The mean over images, and one score per image, in [0, 1].
    """
    scores = [_score(*pair) for pair in zip(candidates, references, strict=True)]
    return sum(scores) / len(scores), scores


def common_length(words: Sequence[str], reference: RougeReference) -> int:
    """Return the number of words in the longest common subsequence."""
    # A 0 bit means: the subsequence grew by one at this position of the reference.
    full = (1 << reference.length) - 1
    row, places = full, reference.places
    for word in words:
        matches = row & places.get(word, 0)
        row = ((row + matches) | (row - matches)) & full
    return reference.length - row.bit_count()


def _index(caption: str) -> RougeReference:
    # pycocoevalcap splits at single spaces, so an empty caption has one (empty) word
    words = caption.split(" ")
    places: dict[str, int] = {}
    for place, word in enumerate(words):
        places[word] = places.get(word, 0) | 1 << place
    return RougeReference(places=places, length=len(words))


def _score(candidate: str, references: Sequence[RougeReference]) -> float:
    words = candidate.split(" ")
    common = [common_length(words, reference) for reference in references]
    precision = max(common) / len(words)
    pairs = zip(common, references, strict=True)
    recall = max(length / reference.length for length, reference in pairs)
    if not precision or not recall:
        return 0.0
    return ((1 + BETA**2) * precision * recall) / (recall + BETA**2 * precision)
