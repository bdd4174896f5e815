"""Count a corpus' structures, lexical words and pairs of lexical words (Eq. 4 to 7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from augmentation.toca.templates import SLOTS, Deconstructed
from captioning.runtime.files import write_atomically

Ints = NDArray[np.int64]
PAIRS_AT_ONCE = 4_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class CorpusStatistics:
    """Counts of a corpus; a word is a text in a slot, so "park" as noun and verb are two words.

    V words are in the order of their slots and then of the alphabet; E pairs are in the order of
    their first and then their second word, so that all words of one slot that follow a word
    stand together.

    Attributes:
        structures: each structure once, commonest first.
        structure_counts: ``(S,) int64``, N of each.
        words: the words' texts.
        slots: ``(V,) int8`` positions in `SLOTS`, ascending.
        word_counts: ``(V,) int64``, N of each.
        first: ``(V + 1,) int64``; pairs that begin with word i are ``first[i]:first[i + 1]``.
        second: ``(E,) int32``, the later word of each pair.
        pair_counts: ``(E,) int64``, N of each.
        left_out: captions that were not counted, by reason.
    """

    structures: tuple[str, ...]
    structure_counts: Ints
    words: tuple[str, ...]
    slots: NDArray[np.int8]
    word_counts: Ints
    first: Ints
    second: NDArray[np.int32]
    pair_counts: Ints
    left_out: dict[str, int]

    @cached_property
    def slot_starts(self) -> Ints:
        """Offsets ``(len(SLOTS) + 1,)``: slot p holds ``slot_starts[p]:slot_starts[p + 1]``."""
        return np.searchsorted(self.slots, np.arange(len(SLOTS) + 1))

    def pairs(self) -> Counter[tuple[str, str]]:
        """Counts by the texts of both words, to inspect small corpora."""
        pairs: Counter[tuple[str, str]] = Counter()
        for word, (start, end) in enumerate(zip(self.first, self.first[1:], strict=False)):
            for row in range(start, end):
                pair = (self.words[word], self.words[self.second[row]])
                pairs[pair] += int(self.pair_counts[row])
        return pairs

    def summary(self) -> dict[str, int]:
        """Numbers of structures, words and pairs, for the card."""
        return {
            "captions": int(self.structure_counts.sum()),
            "structures": len(self.structures),
            "words": len(self.words),
            "pairs": len(self.second),
        }


class _Pairs:
    """Counts of pairs of word numbers, which are summed whenever many pairs were added."""

    def __init__(self) -> None:
        self._keys: Ints = np.zeros(0, np.int64)
        self._counts: Ints = np.zeros(0, np.int64)
        self._new: list[int] = []

    def add(self, numbers: Sequence[int]) -> None:
        """Add all ordered pairs of a caption's words."""
        for position, number in enumerate(numbers):
            first_bits = number << 32
            self._new += [first_bits | later for later in numbers[position + 1 :]]
        if len(self._new) > PAIRS_AT_ONCE:
            self.total()

    def total(self) -> tuple[Ints, Ints]:
        """Keys, ``first << 32 | second``, and the total counts of all pairs."""
        keys = np.concatenate([self._keys, np.array(self._new, np.int64)])
        counts = np.concatenate([self._counts, np.ones(len(self._new), np.int64)])
        self._keys, self._counts, self._new = *_sum_counts(keys, counts), []
        return self._keys, self._counts


def _sum_counts(keys: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Sorted unique keys with the sums of their counts."""
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[starts], np.add.reduceat(counts, starts) if len(starts) else counts


def count_corpus(captions: Iterable[Deconstructed]) -> CorpusStatistics:
    """Count the structures, words and word pairs of deconstructed captions.

    Raises:
        ValueError: no caption has a structure.
    """
    structures: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    numbers: dict[tuple[str, str], int] = {}
    uses: Counter[int] = Counter()
    pairs = _Pairs()
    for caption in captions:
        if caption.problem:
            left_out[caption.problem] += 1
            continue
        structures[caption.structure] += 1
        ids = [numbers.setdefault(word, len(numbers)) for word in caption.words]
        uses.update(ids)
        pairs.add(ids)
    if not structures:
        raise ValueError(
            f"no caption of the corpus has a structure; reasons: {dict(left_out) or 'none'}"
        )
    return _build_statistics(structures, list(numbers), uses, pairs.total(), dict(left_out))


def _build_statistics(
    structures: Counter[str],
    words: Sequence[tuple[str, str]],
    uses: Counter[int],
    pairs: tuple[Ints, Ints],
    left_out: dict[str, int],
) -> CorpusStatistics:
    """Build the statistics, with words in the order that `CorpusStatistics` requires."""
    order = sorted(range(len(words)), key=lambda n: (SLOTS.index(words[n][1]), words[n][0]))
    positions = np.empty(len(words), np.int64)
    positions[order] = np.arange(len(words))
    keys, counts = pairs
    keys, counts = _sum_counts(positions[keys >> 32] << 32 | positions[keys & 0xFFFFFFFF], counts)
    ordered_structures = sorted(structures.items(), key=lambda item: (-item[1], item[0]))
    return CorpusStatistics(
        structures=tuple(structure for structure, _ in ordered_structures),
        structure_counts=np.array([count for _, count in ordered_structures], np.int64),
        words=tuple(words[n][0] for n in order),
        slots=np.array([SLOTS.index(words[n][1]) for n in order], np.int8),
        word_counts=np.array([uses[n] for n in order], np.int64),
        first=np.searchsorted(keys >> 32, np.arange(len(words) + 1)),
        second=(keys & 0xFFFFFFFF).astype(np.int32),
        pair_counts=counts,
        left_out=left_out,
    )


def merge_statistics(first: CorpusStatistics, second: CorpusStatistics) -> CorpusStatistics:
    """Merge the statistics of two corpora, and keep only the structures of the first.

    This is cross-domain synthesis with prior knowledge (S + X): of the target domain, only the
    lexical pairs are known.
    """
    numbers: dict[tuple[str, str], int] = {}
    uses: Counter[int] = Counter()
    keys, counts = [], []
    for corpus in (first, second):
        words_with_slots = zip(corpus.words, corpus.slots.tolist(), strict=True)
        positions = np.array(
            [numbers.setdefault((w, SLOTS[s]), len(numbers)) for w, s in words_with_slots]
        )
        uses.update(dict(zip(positions.tolist(), corpus.word_counts.tolist(), strict=True)))
        first_words = np.repeat(positions, np.diff(corpus.first))
        keys.append(first_words << 32 | positions[corpus.second])
        counts.append(corpus.pair_counts)
    structures = Counter(dict(zip(first.structures, first.structure_counts.tolist(), strict=True)))
    pairs = _sum_counts(np.concatenate(keys), np.concatenate(counts))
    return _build_statistics(structures, list(numbers), uses, pairs, first.left_out)


_ARRAYS = ("structure_counts", "slots", "word_counts", "first", "second", "pair_counts")


def save_statistics(statistics: CorpusStatistics, path: str | Path) -> None:
    """Save statistics as a ``.npz`` file of plain arrays.

    Raises:
        OSError: the file cannot be written.
    """
    arrays = {name: getattr(statistics, name) for name in _ARRAYS}
    left_out = [f"{count} {reason}" for reason, count in statistics.left_out.items()]
    texts = {"structures": statistics.structures, "words": statistics.words, "left_out": left_out}
    for name, lines in texts.items():
        arrays[name] = np.frombuffer("\n".join(lines).encode(), np.uint8)

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.savez_compressed(file, **arrays)

    write_atomically(path, write)


def load_statistics(path: str | Path) -> CorpusStatistics:
    """Load a file that `save_statistics` wrote.

    Raises:
        ValueError: the file has another format.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        texts = {
            name: tuple(bytes(arrays.pop(name)).decode().split("\n"))
            for name in ("structures", "words", "left_out")
        }
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ValueError(f"{path} holds damaged statistics ({error}); delete the file") from error
    counted = [line.partition(" ") for line in texts.pop("left_out") if line]
    left_out = {reason: int(count) for count, _, reason in counted}
    return CorpusStatistics(**texts, **arrays, left_out=left_out)
