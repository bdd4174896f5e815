"""Caption lengths: word counts, the length levels A to E of CIC-BART-SSA, and network limits."""

from __future__ import annotations

import logging
from collections.abc import Iterable

log = logging.getLogger(__name__)

# Smallest word count of levels 1 (A) to 5 (E); an empty caption has no level.
LEVEL_STARTS = (1, 10, 20, 30, 40)


def count_words(caption: str) -> int:
    """Count words separated by blanks that hold a letter or digit; a lone full stop is no word."""
    return sum(any(char.isalnum() for char in word) for word in caption.split())


def count_pieces(caption: str) -> int:
    """Count texts separated by blanks, as CIC-BART's authors do; a lone full stop counts."""
    return len(caption.split())


def length_level(num_words: int) -> int:
    """Return the length level: 1 below 10 words, 2 below 20, up to 5 from 40; 0 for no words."""
    return sum(num_words >= start for start in LEVEL_STARTS)


BY_SENTENCE = "curation/score=sentence_fit judges the sentences of long captions one by one"


class ReadingLimit:
    """Log once that a network truncates some texts.

    Args:
        network: name of the network.
        most: maximum tokens that the network reads, including begin and end tokens.
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
        """Check some texts, and log if any is too long.

        Args:
            reaches: whether each text has as many tokens as the network can read.
        """
        if self._has_told:
            return
        reached = list(reaches)
        if number := sum(reached):
            self._has_told = True
            log.warning(
                f"{self.network} reads {self.most} tokens of a text: {number} of {len(reached)} "
                "reach this limit, and the remaining text is ignored (logged once); "
                f"{self.instead}"
            )
