"""New captions of photos, and the abstract class of methods that make new captions."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from captioning.data.roster import Roster
from captioning.spread.base import AbstractSpread
from captioning.types import Phrase, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCaption:
    """A generated caption with its phrases, graph and score.

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
    """New captions of a photo, and counts of rejected captions by reason."""

    captions: list[NewCaption]
    refused: Counter[str] = field(default_factory=Counter)


class AbstractCaptionMethod(ABC):
    """Generates captions for unchanged photos."""

    description: str
    """Line of the dataset card that describes the captions."""
    keeps_repeats: bool = True
    """Whether to keep a caption that an earlier photo of the dataset already has."""
    photos_at_once: int = 1
    """Number of photos whose captions are generated together."""
    uses_gpu: bool = True
    """Whether the method uses a GPU if one is available."""

    @abstractmethod
    def captions(self, roster: Roster, *, skip: int = 0) -> Iterator[PhotoCaptions]:
        """Yield the new captions of each photo, in the roster's order.

        The captions of a photo depend on the roster and the settings, not on ``skip``.

        Args:
            roster: photos with captions by people.
            skip: photos to skip, because an earlier run has made their captions.

        Raises:
            ValueError: the roster lacks something that the method needs.
            OSError: a model or file cannot be reached.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Settings to run part of a method's work in other processes.

    Attributes:
        spread: runs the generation.
        build: makes `AbstractCorpusMethod.worker` in each process.
        settings: plain values that the work depends on.
        folder: folder of the shards' files.
        plugins, uses_gpu: see `captioning.spread.base.Job`.
    """

    spread: AbstractSpread
    build: Callable[[], Any]
    settings: Any
    folder: Path
    plugins: Sequence[str] = ()
    uses_gpu: bool = True


class AbstractCorpusMethod(ABC):
    """Generates a corpus of captions from another corpus, without photos."""

    name: str
    """Name of the method in messages, as chosen by ``method=``."""
    description: str
    """Line of the dataset card that describes the captions."""
    size_setting: str = ""
    """Dotted config key of the number of captions; empty without such a key. A larger number
    extends a finished dataset."""
    uses_gpu: bool = True
    """Whether the method uses a GPU if one is available."""

    @abstractmethod
    def synthesise(
        self,
        corpus: Roster,
        folder: Path,
        *,
        prior: Roster | None = None,
        max_captions: int | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> dict[str, Any]:
        """Write a new corpus into a folder, or resume an interrupted synthesis.

        Args:
            corpus: the captions that new ones are made of.
            folder: folder of the new corpus.
            prior: a second corpus; None: there is none.
            max_captions: an upper limit of the number that its config gives.
            elsewhere: processes that `worker` is asked in; None: this one.

        Returns:
            Counts for the card, ``captions`` among them.

        Raises:
            ValueError: the corpus allows no new caption.
            OSError: a file cannot be written, or a service is unreachable.
        """

    @abstractmethod
    def worker(self, captions: Sequence[str]) -> Callable[[Sequence[Any]], list[Any]]:
        """Worker for a separate process, from items to plain records; see `captioning.spread.base`.

        Args:
            captions: captions of the corpus.
        """

    @abstractmethod
    def report(self) -> dict[str, Any]:
        """Plain values for the card; called after `synthesise`."""


def placed_phrases(
    phrases: Iterable[Phrase], text: str, *, sought: Callable[[Phrase], str]
) -> tuple[Phrase, ...]:
    """Phrases in the order of the text, with their chains, kinds and regions.

    A phrase takes the first match that no earlier phrase has; without one it spans the complete
    text, after all other phrases.

    Args:
        phrases: phrases of another text, or of none.
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
