"""New captions of photos, and the interface of methods that make them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from captioning.data.roster import Roster
from captioning.types import Phrase, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCaption:
    """A generated caption.

    Attributes:
        sample: one of the photo's samples, for its id, path and regions.
        text: the caption.
        phrases: its phrases with their boxes.
        verb: the word of its first predicate; empty where unknown.
        graph: its meaning in Penman notation; empty where there is none.
        score: its well-formedness, in [0, 1]; None where it was not judged.
    """

    sample: Sample
    text: str
    phrases: tuple[Phrase, ...]
    verb: str = ""
    graph: str = ""
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhotoCaptions:
    """New captions of a photo, and how many others were refused, by reason."""

    captions: list[NewCaption]
    refused: Counter[str] = field(default_factory=Counter)


class AbstractCaptionMethod(ABC):
    """Makes captions for unchanged photos."""

    description: str
    """A line for the set's card that says what the captions are."""
    keeps_repeats: bool = True
    """Whether a caption that an earlier photo of the set has, too, is kept."""
    photos_at_once: int = 1
    """Photos whose captions are made together."""
    uses_gpu: bool = True
    """Whether it computes on a GPU where there is one."""

    @abstractmethod
    def captions(self, roster: Roster, *, skip: int = 0) -> Iterator[PhotoCaptions]:
        """New captions of each photo, in the roster's order.

        The captions of a photo depend on the roster and the settings, not on ``skip``.

        Args:
            roster: photos with captions by people.
            skip: photos to skip, because an earlier run has made their captions.

        Raises:
            ValueError: the roster lacks something that the method needs.
            OSError: a model or file cannot be reached.
        """


def placed_phrases(
    phrases: Iterable[Phrase], text: str, *, sought: Callable[[Phrase], str]
) -> tuple[Phrase, ...]:
    """Phrases in their order in a text, with their chains, kinds and regions.

    A phrase becomes the first place of what is sought for it that no phrase before has; without
    one it spans the complete text, after the others.

    Args:
        phrases: of another text, or of none.
        text: a caption.
        sought: the words of a phrase that the text may have.
    """
    placed, unplaced, used_starts = [], [], set()
    for phrase in phrases:
        words = sought(phrase)
        found = re.finditer(rf"\b{re.escape(words)}\b", text, re.IGNORECASE) if words else ()
        match = next((match for match in found if match.start() not in used_starts), None)
        if match is None:
            unplaced.append(replace(phrase, start=0, text=text))
        else:
            used_starts.add(match.start())
            placed.append(replace(phrase, start=match.start(), text=match[0]))
    return (*sorted(placed, key=lambda phrase: phrase.start), *unplaced)
