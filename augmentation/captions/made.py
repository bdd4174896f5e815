"""What new captions of photos are, and what a method that makes them promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from captioning.data.roster import Roster
from captioning.types import Phrase, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCaption:
    """A caption that was made.

    Attributes:
        sample: one of the photo's own, for its id, path and regions.
        text: the caption.
        phrases: what it names where.
        verb: its first predicate's word; empty where that is not known.
        graph: what it says, in Penman notation; empty where there is none.
        score: its well-formedness, in [0, 1]; None where it was not judged.
    """

    sample: Sample
    text: str
    phrases: tuple[Phrase, ...]
    verb: str = ""
    graph: str = ""
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeOfPhoto:
    """New captions of a photo, and how many others were refused, by reason."""

    captions: list[NewCaption]
    refused: Counter[str] = field(default_factory=Counter)


class AbstractCaptionMethod(ABC):
    """Makes captions for photos as they are."""

    what: str
    """What is made, for the set's card."""

    @abstractmethod
    def captions(self, roster: Roster, *, skip: int = 0) -> Iterator[MadeOfPhoto]:
        """New captions of each photo, in the roster's order.

        What comes for a photo depends on the roster and the settings, not on what was skipped.

        Args:
            roster: people's captions.
            skip: photos that are passed over, as an earlier run has made theirs.

        Raises:
            ValueError: the roster is of another kind than is needed.
            OSError: what is needed cannot be reached.
        """
