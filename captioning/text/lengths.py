"""How long a caption is: its words, and the levels A to E of CIC-BART-SSA."""

from __future__ import annotations

# First number of words of levels 1 (A) to 5 (E); a caption without words has none.
LEVEL_STARTS = (1, 10, 20, 30, 40)


def count_words(caption: str) -> int:
    """Words between blanks that hold a letter or a digit; a full stop that stands alone is none."""
    return sum(any(char.isalnum() for char in word) for word in caption.split())


def count_pieces(caption: str) -> int:
    """Whatever stands between blanks, as CIC-BART's authors count: a lone full stop is one."""
    return len(caption.split())


def length_level(num_words: int) -> int:
    """Level of a number of words: 1 below 10, 2 below 20, up to 5 from 40; 0 for no words."""
    return sum(num_words >= start for start in LEVEL_STARTS)
