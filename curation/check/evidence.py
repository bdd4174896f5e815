"""The data that checks read: captions, measurements of each photo, and embeddings of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Concatenate, ParamSpec

import numpy as np
from numpy.typing import NDArray

from captioning.data.roster import Roster, build_roster
from captioning.interfaces import TextEmbedder
from captioning.text.word_forms import words_of
from curation.base import SentenceDoubt, WordDoubt
from curation.check.generator_folder import GeneratorFolder

Floats = NDArray[np.float32]
Options = ParamSpec("Options")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhotoFacts:
    """Measurements of one photo, made when the photo was opened.

    Attributes:
        problem: why it cannot be used; empty for a good photo.
        size: width and height in pixels; zeros where it cannot be opened.
        contrast: standard deviation of grey values, in [0, 128].
        hash: see `curation.score.duplicate.difference_hash`.
        measured: measures by name, see `curation.check.photo_checks.MEASURES`; empty if it cannot
            be opened.
        key: key of the file's content, see `captioning.vision.photo_keys.content_key`; empty if
            unknown.
        file_size: size of the file in bytes.
    """

    problem: str = ""
    size: tuple[int, int] = (0, 0)
    contrast: float = 0.0
    hash: int = 0
    measured: Mapping[str, float] = field(default_factory=dict)
    key: str = ""
    file_size: int = 0


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Input of all checks: N captions of P photos, with embeddings.

    Attributes:
        roster: the captions.
        photos: photos by path, in the order of their first captions.
        photo_vectors: ``(P, D)`` of unit length, NaN for bad photos; None: not embedded.
        caption_vectors: ``(N, D)`` in the same space.
        sentence_vectors: ``(N, E)`` of unit length, to compare captions with each other; may be
            ``caption_vectors``.
        encoder: embeds further texts in that space; None: nothing does.
        space: name of the space; empty for none.
        splits: splits of photos by path, if the set names them.
        seed: seed of all draws.
        cache_folder: caches the networks' scores of words; None: nothing does.
        generators: facts on a folder for image generators; None: it is no such folder.
        progress: called by a check that takes long with the share that is done.
    """

    roster: Roster
    photos: Mapping[Path, PhotoFacts]
    photo_vectors: Floats | None = None
    caption_vectors: Floats | None = None
    sentence_vectors: Floats | None = None
    encoder: TextEmbedder | None = None
    space: str = ""
    splits: Mapping[Path, str] = field(default_factory=dict)
    seed: int = 0
    cache_folder: Path | None = None
    generators: GeneratorFolder | None = None
    progress: Callable[[float], None] | None = None

    @cached_property
    def captions(self) -> list[str]:
        """Texts of the captions, one for each roster row."""
        return [sample.caption for sample in self.roster.samples]

    @cached_property
    def words(self) -> list[list[str]]:
        """Lower-case words of each caption by row."""
        return [words_of(caption) for caption in self.captions]

    @cached_property
    def photo_of(self) -> NDArray[np.int64]:
        """Position in ``photos`` of each caption's photo, ``(N,)``."""
        places = {path: place for place, path in enumerate(self.photos)}
        return np.array([places[sample.image_path] for sample in self.roster.samples])

    @cached_property
    def facts_of(self) -> list[PhotoFacts]:
        """Facts about the photo of a row's caption."""
        facts = list(self.photos.values())
        return [facts[place] for place in self.photo_of]

    @cached_property
    def groups(self) -> list[NDArray[np.int64]]:
        """Rows of each image's captions."""
        return [np.array(rows) for rows in self.roster.rows_by_image.values()]

    @cached_property
    def in_order_of_content(self) -> tuple[Evidence, NDArray[np.int64]]:
        """Evidence in an order that no file layout changes, and the original row of each, ``(N,)``.

        Images by their photo's content, captions by their text. Draws, folds and trainings in this
        order give a set the same results in every layout.
        """
        captions, keys = self.captions, [facts.key for facts in self.facts_of]
        images = [sorted(rows.tolist(), key=captions.__getitem__) for rows in self.groups]
        images.sort(key=lambda rows: (keys[rows[0]], [captions[row] for row in rows]))
        order = np.array([row for rows in images for row in rows], dtype=np.int64)
        samples = [self.roster.samples[row] for row in order]
        roster = build_roster(self.roster.name, samples, self.roster.dropped)
        paths = list({sample.image_path: None for sample in samples})
        places = {path: place for place, path in enumerate(self.photos)}
        turned = np.array([places[path] for path in paths], dtype=np.int64)
        vectors = {
            name: None if (own := getattr(self, name)) is None else own[order]
            for name in ("caption_vectors", "sentence_vectors")
        }
        photos = None if self.photo_vectors is None else self.photo_vectors[turned]
        seen = {path: self.photos[path] for path in paths}
        return replace(self, roster=roster, photos=seen, photo_vectors=photos, **vectors), order


class Worded(Mapping[int, str]):
    """Reasons by row, each formatted from a value on access.

    Args:
        values: ``(N,)``.
        words: text with a placeholder for the value.
    """

    def __init__(self, values: Floats, words: str) -> None:
        self._values, self._words = values, words

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < len(self._values):
            raise KeyError(row)
        return self._words.format(float(self._values[row]))

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._values)))

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of a check for all captions, with readable reasons.

    Attributes:
        values: ``(N,)``, NaN where it could not be measured.
        reasons: readable reasons for single captions by row.
        note: readable note on the whole set.
        words: the judged words by row, the most likely wrong one first.
        sentences: the judged sentences by row, the most likely wrong one first.
    """

    values: Floats
    reasons: Mapping[int, str] = field(default_factory=dict)
    note: str = ""
    words: Mapping[int, Sequence[WordDoubt]] = field(default_factory=dict)
    sentences: Mapping[int, Sequence[SentenceDoubt]] = field(default_factory=dict)

    @classmethod
    def of(cls, count: int, found: Mapping[int, tuple[float, str]]) -> Scores:
        """Build scores that are 0 except for found captions, which have a value and a reason."""
        values = np.zeros(count, dtype=np.float32)
        for row, (value, _) in found.items():
            values[row] = value
        return cls(values=values, reasons={row: reason for row, (_, reason) in found.items()})


Scorer = Callable[Concatenate[Evidence, Options], Scores]


def by_content(score: Scorer[Options]) -> Scorer[Options]:
    """Decorator of checks: passes captions in an order that does not depend on the file layout."""

    @wraps(score)
    def scored(evidence: Evidence, *args: Options.args, **options: Options.kwargs) -> Scores:
        ordered, order = evidence.in_order_of_content
        found = score(ordered, *args, **options)
        values = np.empty_like(found.values)
        values[order] = found.values
        rows = order.tolist()
        parts = {
            name: {
                rows[row]: tuple(replace(doubt, row=rows[row]) for doubt in doubts)
                for row, doubts in getattr(found, name).items()
            }
            for name in ("words", "sentences")
        }
        reasons = {rows[row]: reason for row, reason in found.reasons.items()}
        return replace(found, values=values, reasons=reasons, **parts)

    return scored


def shortened(texts: Sequence[str], longest: int = 60) -> str:
    """First three texts of a reason, each cut to a maximum number of characters."""
    return ", ".join(repr(t if len(t) <= longest else t[: longest - 1] + "…") for t in texts[:3])
