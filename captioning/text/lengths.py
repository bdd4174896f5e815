"""How long a caption is: its words, the levels A to E of CIC-BART-SSA, and limits of networks."""

from __future__ import annotations

import logging
from collections.abc import Iterable

log = logging.getLogger(__name__)

# First number of words of levels 1 (A) to 5 (E); a caption without words has none.
LEVEL_STARTS = (1, 10, 20, 30, 40)


def count_words(caption: str) -> int:
    """Words between blanks that hold a letter or a digit; a full stop that stands alone is none."""
    return sum(any(char.isalnum() for char in word) for word in caption.split())


def count_pieces(caption: str) -> int:
    """Number of texts between blanks, as CIC-BART's authors count: a lone full stop is one."""
    return len(caption.split())


def length_level(num_words: int) -> int:
    """Level of a number of words: 1 below 10, 2 below 20, up to 5 from 40; 0 for no words."""
    return sum(num_words >= start for start in LEVEL_STARTS)


BY_SENTENCE = "curation/score=sentence_fit judges the sentences of long captions one by one"


class ReadingLimit:
    """Logs once that a network reads the beginnings of some texts alone.

    Args:
        network: its name.
        most: tokens of a text that it reads, marks at the ends counted.
        instead: the remedy.
    """

    def __init__(
        self,
        network: str,
        most: int,
        instead: str = BY_SENTENCE,
    ) -> None:
        self.network, self.most, self.instead = network, most, instead
        self._has_told = False

    def look(self, reaches: Iterable[bool]) -> None:
        """Look at some texts.

        Args:
            reaches: whether each has as many tokens as the network reads.
        """
        if self._has_told:
            return
        reached = list(reaches)
        if number := sum(reached):
            self._has_told = True
            log.warning(
                f"{self.network} reads {self.most} tokens of a text: {number} of {len(reached)} "
                "reach this limit, and their further text is ignored (logged once); "
                f"{self.instead}"
            )
