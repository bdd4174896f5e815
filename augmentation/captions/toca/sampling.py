"""Sentence templates drawn from a corpus' statistics (ToCa, section 3.2, Eq. 8 to 12)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augmentation.captions.toca.corpus_statistics import CorpusStatistics
from augmentation.captions.toca.templates import END, SLOTS, sentence_template

Floats = NDArray[np.float64]
# Words with most successors, whose counts are also kept by position: 4 bytes a word of the corpus.
MOST_DENSE = 1024
LEAST_DENSE = 256
# Draws in a row that bring no new template, after which there are none left to find.
MOST_REPEATS = 20_000
FEW_TRIES = 4  # draws of a word before those that are not wanted are taken out


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceTemplate:
    """What a language model is asked to complete.

    Attributes:
        structure: G_s.
        words: drawn lexical words in order; slots that no word fits are passed over.
        text: s', with gaps.
        tokens: what is given between the gaps, each with its slot; function words have none ("").
    """

    structure: str
    words: tuple[str, ...]
    text: str
    tokens: tuple[tuple[str, str], ...]


class TemplateSampler:
    """Draws structures by their counts, and lexical words into their slots.

    A word is drawn by its count (Eq. 8), the second one by how often it follows the first (Eq. 9),
    each further one by the product of such counts over all words before it, divided by its own
    count to the power of ``(i - 1) / tau`` (Eq. 12). Where no word ever followed all of them, the
    slot is passed over. A word is not drawn twice: captions have words twice, and the product
    would soon draw little else (the paper says nothing of it, and shows no such template).

    Args:
        statistics: of the corpus.
        tau: of Eq. 12; larger values give common words more. None is infinity, the paper's default:
            nothing is divided.
        use_structures: False is the ablation "G w/o": only the number of words is drawn; they are
            of any part of speech, and no function word is given.
        use_relations: False is the ablation "R w/o": every word is drawn by Eq. 8.
        whole_first: `templates` gives those with a word in every slot first, and others only when
            there are no more. Of a small corpus most have a slot that no word fits, and what is
            left is often no sentence ("a person next to with"). False gives them as they are drawn.
        most_given: `templates` gives at most so many of a template's words, in order and without
            function words; how many, and which, is drawn. None: the whole template, as the paper.

    Raises:
        ValueError: ``tau`` is not above 0.
    """

    def __init__(
        self,
        statistics: CorpusStatistics,
        *,
        tau: float | None = None,
        use_structures: bool = True,
        use_relations: bool = True,
        whole_first: bool = True,
        most_given: int | None = None,
    ) -> None:
        if tau is not None and not tau > 0:
            raise ValueError(f"tau must be above 0, or null for infinity: got {tau}")
        if most_given is not None and most_given < 1:
            raise ValueError(f"most_given must be at least 1, or null for all: got {most_given}")
        self.statistics, self._most_given = statistics, most_given
        self._tau, self._use_relations = tau, use_relations
        self._use_structures, self._whole_first = use_structures, whole_first
        # floats, as what is looked up in them: else each look-up would convert all of them
        self._structures = np.cumsum(statistics.structure_counts, dtype=np.float64)
        self._parsed: dict[int, list[int | str]] = {}
        self._words = np.concatenate([[0.0], np.cumsum(statistics.word_counts)])
        self._pairs = np.concatenate([[0.0], np.cumsum(statistics.pair_counts)])
        self._pair_counts = statistics.pair_counts.astype(np.float64)
        self._starts = _segment_starts(statistics).tolist()
        self._dense = _dense_rows(statistics)
        self._slot_starts = statistics.slot_starts.tolist()

    def templates(self, generator: np.random.Generator) -> Iterator[SentenceTemplate]:
        """Different templates, until many draws in a row bring nothing new."""
        seen: set[str] = set()
        for whole in (True, False) if self._whole_first else (False,):
            repeats = 0
            while repeats < MOST_REPEATS:
                template = self.draw(generator, whole=whole)
                if template is None or not template.words or template.text in seen:
                    repeats += 1
                    continue
                repeats = 0
                seen.add(template.text)
                if self._most_given is None:
                    yield template
                else:
                    yield with_some_words(template, self._most_given, generator)

    def draw(
        self, generator: np.random.Generator, *, whole: bool = False
    ) -> SentenceTemplate | None:
        """One template; None if a whole one is wanted, and no word fits a slot of this one."""
        chance = generator.random() * self._structures[-1]
        number = int(self._structures.searchsorted(chance, side="right"))
        tokens, drawn = [], []
        for part in self._parts(number):
            if isinstance(part, str):
                tokens.append((part, ""))
                continue
            word = self._draw_word(part, drawn if self._use_relations else [], generator)
            if word is not None and word not in drawn:
                drawn.append(word)
                tokens.append((self.statistics.words[word], SLOTS[self.statistics.slots[word]]))
            elif whole:
                return None
        return as_template(self.statistics.structures[number], tokens)

    def _parts(self, number: int) -> list[int | str]:
        """A structure as positions of slots and texts of function words; -1 is any slot."""
        if number not in self._parsed:
            parts = self.statistics.structures[number].split(" ")
            known: list[int | str] = [SLOTS.index(p[1:-1]) if p[0] == "[" else p for p in parts]
            if not self._use_structures:
                known = [*(-1 for part in known if isinstance(part, int)), END]
            self._parsed[number] = known
        return self._parsed[number]

    def _draw_word(
        self, slot: int, before: list[int], generator: np.random.Generator
    ) -> int | None:
        """A word for a slot, given those before it; None where there is none."""
        if not before:
            return _drawn(self._words, *self._slot_range(slot), generator)
        if len(before) == 1:
            place = _drawn(self._pairs, *self._segment(before[0], slot), generator)
            return None if place is None else int(self.statistics.second[place])
        return self._draw_by_all(slot, before, generator)

    def _draw_by_all(
        self, slot: int, before: list[int], generator: np.random.Generator
    ) -> int | None:
        """Eq. 12, over the successors of the word that has fewest."""
        segments = [self._segment(word, slot) for word in before]
        least = min(range(len(before)), key=lambda n: segments[n][1] - segments[n][0])
        start, end = segments[least]
        if start == end:
            return None
        words = self.statistics.second[start:end]
        weights = self._pair_counts[start:end].copy()
        for n, word in enumerate(before):
            if n != least:
                weights *= self._counts(word, segments[n], words)
        if self._tau is not None:
            power = (len(before) - 1) / self._tau
            weights = _divided(weights, self.statistics.word_counts[words], power)
        return _drawn_anew(words, weights, before, generator)

    def _counts(
        self, word: int, segment: tuple[int, int], later: NDArray[np.int32]
    ) -> NDArray[np.floating]:
        """How often each of some words follows a word."""
        if word in self._dense:
            return self._dense[word].take(later)
        start, end = segment
        if start == end:
            return np.zeros(len(later))
        known = self.statistics.second[start:end]
        places = np.minimum(known.searchsorted(later), end - start - 1)
        return np.where(known[places] == later, self._pair_counts[start:end][places], 0.0)

    def _slot_range(self, slot: int) -> tuple[int, int]:
        if slot < 0:
            return 0, len(self.statistics.words)
        return self._slot_starts[slot], self._slot_starts[slot + 1]

    def _segment(self, word: int, slot: int) -> tuple[int, int]:
        """Where the pairs of a word with words of a slot stand."""
        starts = self._starts[word]
        if slot < 0:
            return starts[0], starts[-1]
        return starts[slot], starts[slot + 1]


def as_template(structure: str, tokens: Sequence[tuple[str, str]]) -> SentenceTemplate:
    """The template of a structure that gives some tokens, each with its slot."""
    return SentenceTemplate(
        structure=structure,
        words=tuple(token for token, slot in tokens if slot),
        text=sentence_template([token for token, _ in tokens]),
        tokens=tuple(tokens),
    )


def with_some_words(
    template: SentenceTemplate, most: int, generator: np.random.Generator
) -> SentenceTemplate:
    """A template with at most so many of its words, and no function words.

    How many is drawn from 1 to ``most``, as far as there are so many; all are as likely to stay.
    """
    lexical = [token for token in template.tokens if token[1]]
    number = int(generator.integers(1, min(most, len(lexical)), endpoint=True))
    places = sorted(generator.choice(len(lexical), number, replace=False).tolist())
    return as_template(template.structure, [*(lexical[place] for place in places), (END, "")])


def _divided(weights: Floats, counts: NDArray[np.int64], power: float) -> Floats:
    """Weights over a power of counts, up to a common factor; all 0 where they are.

    A small tau makes a power that no float holds, so only the largest weight is left at 1.
    """
    known = weights > 0
    logs = np.log(weights, where=known, out=np.full(len(weights), -np.inf)) - power * np.log(counts)
    return np.exp(logs - logs.max()) if known.any() else weights


def _drawn(cumulative: Floats, start: int, end: int, generator: np.random.Generator) -> int | None:
    """A position from start to end, by the counts that ``cumulative`` sums up."""
    low, high = cumulative[start], cumulative[end]
    if low == high:
        return None
    chance = low + generator.random() * (high - low)
    return start + int(cumulative[start + 1 : end + 1].searchsorted(chance, side="right"))


def _drawn_anew(
    words: NDArray[np.int32], weights: Floats, before: list[int], generator: np.random.Generator
) -> int | None:
    """One of some words by their weights, but none of those before; None where there is none."""
    total = weights.cumsum()
    for _ in range(FEW_TRIES):
        if not total[-1] > 0:
            return None
        word = int(words[total.searchsorted(generator.random() * total[-1], side="right")])
        if word not in before:
            return word
    # these have nearly all the weight, or all of it
    weights[np.isin(words, before)] = 0.0
    total = weights.cumsum()
    if not total[-1] > 0:
        return None
    return int(words[total.searchsorted(generator.random() * total[-1], side="right")])


def _segment_starts(statistics: CorpusStatistics) -> NDArray[np.int64]:
    """``(V, len(SLOTS) + 1)``: where the successors of each word in each slot begin."""
    num_words = len(statistics.words)
    firsts = np.repeat(np.arange(num_words), np.diff(statistics.first))
    keys = firsts * len(SLOTS) + statistics.slots[statistics.second]
    starts_of = np.arange(num_words)[:, None] * len(SLOTS) + np.arange(len(SLOTS) + 1)
    return np.searchsorted(keys, starts_of)


def _dense_rows(statistics: CorpusStatistics) -> dict[int, NDArray[np.float32]]:
    """Counts of all words after each of the words with most successors."""
    sizes = np.diff(statistics.first)
    largest = np.argsort(-sizes, kind="stable")[:MOST_DENSE]
    rows = {}
    for word in largest[sizes[largest] >= LEAST_DENSE].tolist():
        part = slice(statistics.first[word], statistics.first[word + 1])
        row = np.zeros(len(statistics.words), np.float32)
        row[statistics.second[part]] = statistics.pair_counts[part]
        rows[word] = row
    return rows
