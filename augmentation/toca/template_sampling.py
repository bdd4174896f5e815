"""Draw sentence templates from a corpus' statistics (ToCa, section 3.2, Eq. 8 to 12)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augmentation.toca.corpus_statistics import CorpusStatistics
from augmentation.toca.templates import END, SLOTS, sentence_template

Floats = NDArray[np.float64]
# Words with most successors have counts by position, too: 4 bytes a word of the corpus.
MAX_DENSE = 1024
MIN_DENSE = 256
# Draws in a row without a new template, after which no further templates are expected.
MAX_REPEATS = 20_000
NUM_QUICK_DRAWS = 4  # draws of a word before used words are excluded


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceTemplate:
    """A sentence with gaps, for a language model to complete.

    Attributes:
        structure: G_s.
        words: drawn lexical words in order; slots without a fitting word are skipped.
        text: s', with gaps.
        tokens: words between the gaps, each with its slot; function words have none ("").
    """

    structure: str
    words: tuple[str, ...]
    text: str
    tokens: tuple[tuple[str, str], ...]


class TemplateSampler:
    """Draws structures by their frequency, and lexical words for their slots.

    A word is drawn by its count (Eq. 8), the second one by how often it follows the first (Eq. 9),
    each further one by the product of such counts over all words before it, divided by its own
    count to the power of ``(i - 1) / tau`` (Eq. 12). Where no word ever followed all of them, the
    slot is skipped. A word is not drawn twice: captions repeat words, and the product would soon
    draw little else (the paper does not mention it, and shows no such template).

    Args:
        statistics: statistics of the corpus.
        tau: tau of Eq. 12; larger values favour common words. None is infinity, the paper's
            default: nothing is divided.
        use_structures: False is the ablation "G w/o": only the number of words is drawn; they are
            of any part of speech, and no function word is given.
        use_relations: False is the ablation "R w/o": every word is drawn by Eq. 8.
        complete_first: `templates` yields templates with a word in every slot first, and others
            only when there are no more. In a small corpus most have a slot that no word fits, and
            the rest is often no sentence ("a person next to with"). False: in the order drawn.
        max_given_words: `templates` keeps at most so many of a template's words, in order and
            without function words; their number and choice are drawn. None: the complete
            template, as in the paper.

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
        complete_first: bool = True,
        max_given_words: int | None = None,
    ) -> None:
        if tau is not None and not tau > 0:
            raise ValueError(f"tau must be above 0, or null for an infinite tau: got {tau}")
        if max_given_words is not None and max_given_words < 1:
            raise ValueError(
                f"max_given_words must be at least 1, or null for no limit: got {max_given_words}"
            )
        self.statistics, self._max_given_words = statistics, max_given_words
        self._tau, self._use_relations = tau, use_relations
        self._use_structures, self._complete_first = use_structures, complete_first
        # floats, like the values that are looked up: else each look-up would convert all of them
        self._structures = np.cumsum(statistics.structure_counts, dtype=np.float64)
        self._parsed: dict[int, list[int | str]] = {}
        self._words = np.concatenate([[0.0], np.cumsum(statistics.word_counts)])
        self._pairs = np.concatenate([[0.0], np.cumsum(statistics.pair_counts)])
        self._pair_counts = statistics.pair_counts.astype(np.float64)
        self._starts = _segment_starts(statistics).tolist()
        self._dense = _dense_rows(statistics)
        self._slot_starts = statistics.slot_starts.tolist()

    def templates(self, generator: np.random.Generator) -> Iterator[SentenceTemplate]:
        """Yield different templates, until many consecutive draws give no new template."""
        seen: set[str] = set()
        for complete in (True, False) if self._complete_first else (False,):
            repeats = 0
            while repeats < MAX_REPEATS:
                template = self.draw(generator, complete=complete)
                if template is None or not template.words or template.text in seen:
                    repeats += 1
                    continue
                repeats = 0
                seen.add(template.text)
                if self._max_given_words is None:
                    yield template
                else:
                    yield with_some_words(template, self._max_given_words, generator)

    def draw(
        self, generator: np.random.Generator, *, complete: bool = False
    ) -> SentenceTemplate | None:
        """Draw one template; None if ``complete`` is set and no word fits one of its slots."""
        chance = generator.random() * self._structures[-1]
        number = int(self._structures.searchsorted(chance, side="right"))
        tokens, drawn = [], []
        for part in self._parts(number):
            if isinstance(part, str):
                tokens.append((part, ""))
                continue
            word = self._draw_word(part, drawn if self._use_relations else [], generator)
            if word is not None and self._is_new(word, drawn):
                drawn.append(word)
                tokens.append((self.statistics.words[word], SLOTS[self.statistics.slots[word]]))
            elif complete:
                return None
        return as_template(self.statistics.structures[number], tokens)

    def _is_new(self, word: int, drawn: list[int]) -> bool:
        """Return whether no drawn word has this text in any slot: "park" may also be a verb."""
        words = self.statistics.words
        return all(words[word] != words[other] for other in drawn)

    def _parts(self, number: int) -> list[int | str]:
        """Slot positions and function words of a structure; -1 is any slot."""
        if number not in self._parsed:
            parts = self.statistics.structures[number].split(" ")
            part_numbers: list[int | str] = [
                SLOTS.index(p[1:-1]) if p[0] == "[" else p for p in parts
            ]
            if not self._use_structures:
                part_numbers = [*(-1 for part in part_numbers if isinstance(part, int)), END]
            self._parsed[number] = part_numbers
        return self._parsed[number]

    def _draw_word(
        self, slot: int, before: list[int], generator: np.random.Generator
    ) -> int | None:
        """Draw a word for a slot, given the words before it; None if no word fits."""
        if not before:
            return _draw_position(self._words, *self._slot_range(slot), generator)
        if len(before) == 1:
            place = _draw_position(self._pairs, *self._segment(before[0], slot), generator)
            return None if place is None else int(self.statistics.second[place])
        return self._draw_by_all(slot, before, generator)

    def _draw_by_all(
        self, slot: int, before: list[int], generator: np.random.Generator
    ) -> int | None:
        """Draw by Eq. 12 among the successors of the word with the fewest successors."""
        segments = [self._segment(word, slot) for word in before]
        fewest = min(range(len(before)), key=lambda n: segments[n][1] - segments[n][0])
        start, end = segments[fewest]
        if start == end:
            return None
        words = self.statistics.second[start:end]
        weights = self._pair_counts[start:end].copy()
        for n, word in enumerate(before):
            if n != fewest:
                weights *= self._counts(word, segments[n], words)
        if self._tau is not None:
            power = (len(before) - 1) / self._tau
            weights = _divided(weights, self.statistics.word_counts[words], power)
        return _draw_new_word(words, weights, before, generator)

    def _counts(
        self, word: int, segment: tuple[int, int], later: NDArray[np.int32]
    ) -> NDArray[np.floating]:
        """Count how often each of some words follows a word."""
        if word in self._dense:
            return self._dense[word].take(later)
        start, end = segment
        if start == end:
            return np.zeros(len(later))
        successors = self.statistics.second[start:end]
        positions = np.minimum(successors.searchsorted(later), end - start - 1)
        return np.where(
            successors[positions] == later, self._pair_counts[start:end][positions], 0.0
        )

    def _slot_range(self, slot: int) -> tuple[int, int]:
        if slot < 0:
            return 0, len(self.statistics.words)
        return self._slot_starts[slot], self._slot_starts[slot + 1]

    def _segment(self, word: int, slot: int) -> tuple[int, int]:
        """Start and end of the pairs of a word with words of a slot."""
        starts = self._starts[word]
        if slot < 0:
            return starts[0], starts[-1]
        return starts[slot], starts[slot + 1]


def as_template(structure: str, tokens: Sequence[tuple[str, str]]) -> SentenceTemplate:
    """Build the template of a structure from tokens with slots."""
    return SentenceTemplate(
        structure=structure,
        words=tuple(token for token, slot in tokens if slot),
        text=sentence_template([token for token, _ in tokens]),
        tokens=tuple(tokens),
    )


def with_some_words(
    template: SentenceTemplate, max_words: int, generator: np.random.Generator
) -> SentenceTemplate:
    """Reduce a template to at most ``max_words`` of its words, without function words.

    Their number is drawn from 1 to ``max_words``, or to all there are; all are equally likely.
    """
    lexical = [token for token in template.tokens if token[1]]
    number = int(generator.integers(1, min(max_words, len(lexical)), endpoint=True))
    positions = sorted(generator.choice(len(lexical), number, replace=False).tolist())
    return as_template(template.structure, [*(lexical[place] for place in positions), (END, "")])


def _divided(weights: Floats, counts: NDArray[np.int64], power: float) -> Floats:
    """Weights divided by a power of counts, up to a common factor; zero weights stay zero.

    A small tau makes a power that no float holds, so the weights are scaled to a largest of 1.
    """
    positive = weights > 0
    logs = np.log(weights, where=positive, out=np.full(len(weights), -np.inf)) - power * np.log(
        counts
    )
    return np.exp(logs - logs.max()) if positive.any() else weights


def _draw_position(
    cumulative: Floats, start: int, end: int, generator: np.random.Generator
) -> int | None:
    """Draw a position from start to end, weighted by the cumulative counts ``cumulative``."""
    low, high = cumulative[start], cumulative[end]
    if low == high:
        return None
    chance = low + generator.random() * (high - low)
    return start + int(cumulative[start + 1 : end + 1].searchsorted(chance, side="right"))


def _draw_new_word(
    words: NDArray[np.int32], weights: Floats, before: list[int], generator: np.random.Generator
) -> int | None:
    """Draw a word by weight that differs from the words before; None if there is none."""
    total = weights.cumsum()
    for _ in range(NUM_QUICK_DRAWS):
        if not total[-1] > 0:
            return None
        word = int(words[total.searchsorted(generator.random() * total[-1], side="right")])
        if word not in before:
            return word
    # the words before have nearly all the weight, or all of it
    weights[np.isin(words, before)] = 0.0
    total = weights.cumsum()
    if not total[-1] > 0:
        return None
    return int(words[total.searchsorted(generator.random() * total[-1], side="right")])


def _segment_starts(statistics: CorpusStatistics) -> NDArray[np.int64]:
    """Offsets ``(V, len(SLOTS) + 1)`` of each word's successors in each slot."""
    num_words = len(statistics.words)
    first_words = np.repeat(np.arange(num_words), np.diff(statistics.first))
    keys = first_words * len(SLOTS) + statistics.slots[statistics.second]
    starts_of = np.arange(num_words)[:, None] * len(SLOTS) + np.arange(len(SLOTS) + 1)
    return np.searchsorted(keys, starts_of)


def _dense_rows(statistics: CorpusStatistics) -> dict[int, NDArray[np.float32]]:
    """Dense count rows for the words with the most successors."""
    sizes = np.diff(statistics.first)
    largest = np.argsort(-sizes, kind="stable")[:MAX_DENSE]
    rows = {}
    for word in largest[sizes[largest] >= MIN_DENSE].tolist():
        part = slice(statistics.first[word], statistics.first[word + 1])
        row = np.zeros(len(statistics.words), np.float32)
        row[statistics.second[part]] = statistics.pair_counts[part]
        rows[word] = row
    return rows
