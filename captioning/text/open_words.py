"""Build rows of competing nouns, verbs and adjectives from the captions themselves.

Words of one part of speech and form compete if they occur in similar contexts: *hill*, *slope*
and *path*; *poses* and *kneels*. Part-of-speech tags come from the parser, and similarity from
neighbouring words. Two words of a row that captions of one photo use for each other
(*child*, *kid*) count as one meaning, because both are right for the same thing.

The run time grows with the number of words in all captions; the number of row words is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from captioning.text.lemmas import load_lemmas
from captioning.text.parser import LEMMAS_FILE
from captioning.text.row_tables import WORD, RowTable, WordRow, joined
from captioning.text.tagger import CaptionTagger
from captioning.text.word_rows import closed_rows

TOPIC_OF = {
    **dict.fromkeys(("NN", "NNS"), "noun"),
    **dict.fromkeys(("VB", "VBG", "VBN", "VBP", "VBZ"), "verb"),
    "JJ": "adjective",
}
OPEN_TOPICS = tuple(dict.fromkeys(TOPIC_OF.values()))
MIN_COUNT = 5  # captions that hold a word; of rarer ones too little is known
MAX_WORDS = 4000  # the most frequent ones are in rows
MOST_IN_ROW = 16  # of words; the closed rows have as many
_NAMES = {"NNP": "NN", "NNPS": "NNS"}  # in small letters they are no names
_HELPERS = frozenset(
    ("is", "are", "was", "were", "be", "been", "being", "has", "have", "had", "do", "does", "did")
)
_CONTEXTS = 600  # most frequent words that are told apart around a word
_OFFSETS = (-2, -1, 1, 2)
_SIDES = np.arange(len(_OFFSETS))
_DIMENSIONS = 64
_SHARED = 0.4  # of how often one word is said twice of a photo, from which two are one meaning
_TOGETHER = 0.2  # most captions with both, for each photo that has both in different captions


def with_open_rows(
    captions: Sequence[str],
    photos: Sequence[int],
    *,
    tables: Sequence[RowTable] = (),
    seed: int = 0,
) -> RowTable:
    """Combine the closed rows, further rows, and rows of other caption words, see `open_rows`."""
    known = joined([closed_rows(), *tables])
    return joined([known, open_rows(captions, photos, without=known.same.keys(), seed=seed)])


@dataclass(frozen=True, kw_only=True)
class _Word:
    """A candidate word for a row.

    Attributes:
        text: word in lower case.
        tag: its most frequent Penn Treebank tag.
        count: number of captions with the word.
        lemma: dictionary form.
    """

    text: str
    tag: str
    count: int
    lemma: str


def open_rows(
    captions: Sequence[str],
    photos: Sequence[int],
    *,
    without: Collection[str],
    tagger: CaptionTagger | None = None,
    seed: int = 0,
) -> RowTable:
    """Build rows from the captions' words, with the topics `OPEN_TOPICS`.

    Args:
        captions: ``N`` texts.
        photos: photo number of each caption.
        without: lower-case words that belong to other rows.
        tagger: part-of-speech tagger; None: the packaged tagger.
        seed: seed of the word order within a row; different seeds give different tables.

    Raises:
        ImportError: spaCy is not installed.
    """
    tagger = CaptionTagger() if tagger is None else tagger
    texts = [[word.lower() for word in WORD.findall(caption)] for caption in captions]
    words = _words(texts, captions, without, tagger)
    vectors = _vectors(texts, [word.text for word in words])
    rng = np.random.default_rng(seed)
    rows: list[WordRow] = []
    same: dict[str, frozenset[str]] = {}
    counts = _Sharing(texts, photos, words=frozenset(word.text for word in words))
    for tag, topic in TOPIC_OF.items():
        own = [number for number, word in enumerate(words) if word.tag == tag]
        for place, members in enumerate(_clusters(vectors[own], rng)):
            row = [words[own[member]] for member in members]
            meanings = counts.meanings([word.text for word in row])
            if len(meanings) > 1:
                name = f"{topic}-{tag}{place}"
                rows.append(WordRow(name=name, topic=topic, meanings=meanings))
                same |= {word: frozenset(m) for m in meanings for word in m}
    return RowTable(rows=tuple(rows), same=_with_forms(same, words))


def _words(
    texts: Sequence[Sequence[str]],
    captions: Sequence[str],
    without: Collection[str],
    tagger: CaptionTagger,
) -> list[_Word]:
    """Return the sufficiently frequent words, most frequent first."""
    counts = Counter(word for text in texts for word in set(text))
    tags: dict[str, Counter[str]] = {}
    for caption in tagger.tag(captions):
        for word, tag in caption:
            tags.setdefault(word.lower(), Counter())[_NAMES.get(tag, tag)] += 1
    lemmatizer = load_lemmas(tagger.folder / LEMMAS_FILE)
    words = []
    for text, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if count < MIN_COUNT or len(text) < 2 or text in without or text in _HELPERS:
            continue
        tag = tags[text].most_common(1)[0][0] if text in tags else ""
        if tag in TOPIC_OF:
            words.append(_Word(text=text, tag=tag, count=count, lemma=lemmatizer(text, tag)))
    return words[:MAX_WORDS]


def _vectors(texts: Sequence[Sequence[str]], words: Sequence[str]) -> np.ndarray:
    """Return unit vectors ``(W, D)`` of words from mutual information with their neighbours."""
    number = {word: place for place, word in enumerate(words)}
    ranked = Counter(word for text in texts for word in text).most_common(_CONTEXTS)
    contexts = {word: place for place, (word, _) in enumerate(ranked)}
    table = np.zeros((len(words), len(_OFFSETS), _CONTEXTS + 2), dtype=np.float32)
    edge = [_CONTEXTS + 1] * max(_OFFSETS)
    for text in texts:
        around = [*edge, *(contexts.get(word, _CONTEXTS) for word in text), *edge]
        for place, word in enumerate(text, start=len(edge)):
            if word in number:
                table[number[word], _SIDES, [around[place + offset] for offset in _OFFSETS]] += 1
    counts = table.reshape(len(words), len(_OFFSETS) * (_CONTEXTS + 2))
    damped = counts.sum(0) ** 0.75  # rare neighbours would count too much
    expected = counts.sum(1, keepdims=True) * damped / max(damped.sum(), 1)
    information = np.maximum(np.log(np.maximum(counts, 1e-9) / np.maximum(expected, 1e-9)), 0)
    return _reduced(np.where(counts > 0, information, 0).astype(np.float32))


def _reduced(values: np.ndarray) -> np.ndarray:
    """Project rows to the largest components by subspace iteration, with unit length."""
    centred = values - values.mean(0) if len(values) else values
    basis = np.random.default_rng(0).standard_normal((values.shape[1], _DIMENSIONS))
    basis = basis.astype(np.float32)
    for _ in range(4):
        basis, _ = np.linalg.qr(centred.T @ (centred @ basis))
    reduced = centred @ basis
    return reduced / np.maximum(np.linalg.norm(reduced, axis=1, keepdims=True), 1e-9)


def _clusters(vectors: np.ndarray, rng: np.random.Generator) -> Iterator[list[int]]:
    """Yield clusters of similar words: a leading word and its nearest unused words."""
    free = np.ones(len(vectors), dtype=bool)
    # words come by frequency: slightly shuffled, so that other seeds give other leaders
    order = np.argsort(np.log(np.arange(len(vectors)) + 1) + rng.random(len(vectors)))
    for leader in order.tolist():
        if free[leader]:
            likeness = np.where(free, vectors @ vectors[leader], -np.inf)
            members = np.argsort(-likeness, kind="stable")[: min(MOST_IN_ROW, int(free.sum()))]
            free[members] = False
            yield members.tolist()


class _Sharing:
    """Counts of words that different captions use for the same photo.

    Args:
        texts: words of each caption.
        photos: photo number of each caption.
        words: words to count.
    """

    def __init__(
        self, texts: Sequence[Sequence[str]], photos: Sequence[int], *, words: frozenset[str]
    ) -> None:
        captions_of: dict[int, list[frozenset[str]]] = {}
        for text, photo in zip(texts, photos, strict=True):
            captions_of.setdefault(photo, []).append(words.intersection(text))
        self._counts: dict[str, dict[int, int]] = {}  # captions with the word by photo
        self._captions: dict[str, set[tuple[int, int]]] = {}
        for photo, captions in captions_of.items():
            for place, named in enumerate(captions):
                for word in named:
                    own = self._counts.setdefault(word, {})
                    own[photo] = own.get(photo, 0) + 1
                    self._captions.setdefault(word, set()).add((photo, place))

    def meanings(self, words: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Group the words of a row into meanings: words used for the same thing."""
        meanings: list[list[str]] = []
        for word in words:
            for meaning in meanings:
                if self._is_same(meaning[0], word):
                    meaning.append(word)
                    break
            else:
                meanings.append([word])
        return tuple(tuple(meaning) for meaning in meanings)

    def _is_same(self, first: str, second: str) -> bool:
        """Whether captions of a photo agree on two words as they agree on one of them."""
        mine, others = self._counts[first], self._counts[second]
        photos = mine.keys() & others.keys()
        shared = sum(mine[photo] * others[photo] for photo in photos)
        again = [sum(n * (n - 1) for n in counts.values()) for counts in (mine, others)]
        together = len(self._captions[first] & self._captions[second])
        return (
            min(again) > 0
            and together <= _TOGETHER * len(photos)
            and shared >= _SHARED * np.sqrt(again[0] * again[1])
        )


def _with_forms(
    same: Mapping[str, frozenset[str]], words: Sequence[_Word]
) -> dict[str, frozenset[str]]:
    """Return, for each word of a row, all words of its meaning and their other forms."""
    by_lemma: dict[tuple[str, str], set[str]] = {}
    lemma_of = {}
    for word in words:
        key = (TOPIC_OF[word.tag], word.lemma)
        lemma_of[word.text] = key
        if word.text in same:
            by_lemma.setdefault(key, set()).add(word.text)
    groups: dict[str, set[str]] = {}
    for meaning in same.values():
        group = set(meaning).union(*(by_lemma[lemma_of[m]] for m in meaning))
        group = group.union(*(groups[one] for one in group if one in groups))
        groups |= dict.fromkeys(group, group)
    return {word: frozenset(groups[word]) for word in same}
