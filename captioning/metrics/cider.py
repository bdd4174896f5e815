"""CIDEr-D and CIDEr (Vedantam et al., 2015) with reusable document frequencies.

`CiderStatistics` holds the document frequencies of a collection of references: those of the
scored images, as in pycocoevalcap, or of a saved corpus, so that even a single image can be
scored. `CiderReferences` holds references as tf-idf vectors, ready to score any number of captions.
With document frequencies of the references themselves, CIDEr-D equals pycocoevalcap's ``Cider``
to at least nine digits.

Captions must be tokenized, with tokens separated by spaces. Internally an n-gram is a pair of
integers (its first n - 1 words, its last word), found by binary search.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from captioning.runtime.files import write_atomically

ORDERS = 4
SIGMA = 6.0
VARIANTS = ("CIDEr-D", "CIDEr")
_FORMAT = "cider-statistics-1"
_DAMAGE = (ValueError, LookupError, TypeError, EOFError, RuntimeError, OSError)
_BLOCK = 20_000  # captions scored at once, so that memory stays near 200 MB

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NgramTable:
    """Distinct n-grams of 1 to 4 words, numbered 0 to G - 1, shorter ones first.

    Attributes:
        words: W words in sorted order; the 1-grams.
        keys: keys for 2, 3 and 4 words, ascending int64: number of the n-gram's first n - 1 words
            among the n-grams of that length, times W, plus the number of its last word.
    """

    words: tuple[str, ...]
    keys: tuple[Ints, ...]

    @property
    def starts(self) -> Ints:
        """Number of the first n-gram of each length, then the count G: shape ``(5,)``."""
        return np.cumsum([0, len(self.words), *map(len, self.keys)])

    def orders(self) -> Ints:
        """Length of each n-gram minus 1, ``(G,)``."""
        return np.repeat(np.arange(ORDERS), np.diff(self.starts))

    def locate(self, other: NgramTable) -> Ints:
        """Return this table's number of each n-gram of another table, ``(G_other,)``, or -1."""
        numbers = dict(zip(self.words, range(len(self.words)), strict=True))
        words = np.array([numbers.get(word, -1) for word in other.words], dtype=np.int64)
        located, previous = [words], words
        for start, own, theirs in zip(self.starts[1:], self.keys, other.keys, strict=False):
            first, word = np.divmod(theirs, max(1, len(words)))
            prefix, ending = previous[first], words[word]
            targets = np.where((prefix < 0) | (ending < 0), -1, prefix * len(numbers) + ending)
            previous = find_sorted(own, targets)
            located.append(np.where(previous < 0, -1, previous + start))
        return np.concatenate(located)

    def keep(self, selected: NDArray[np.bool_]) -> NgramTable:
        """Select the n-grams in ``kept (G,)``; each needs its prefix and its last word selected."""
        parts = np.split(selected, self.starts[1:-1])
        renumbered = [np.cumsum(part) - 1 for part in parts]
        keys = []
        for order, all_keys in enumerate(self.keys):
            first, word = np.divmod(all_keys[parts[order + 1]], max(1, len(self.words)))
            keys.append(renumbered[order][first] * int(parts[0].sum()) + renumbered[0][word])
        words = tuple(w for w, is_selected in zip(self.words, parts[0], strict=True) if is_selected)
        return NgramTable(words=words, keys=tuple(keys))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NgramCounts:
    """N-gram counts: n-gram ``gram (E,)`` occurs ``count (E,)`` times in ``caption (E,)``.

    Entries are ordered by caption, then n-gram; ``num_words (B,)`` are the captions' lengths.
    """

    table: NgramTable
    caption: Ints
    gram: Ints
    count: Ints
    num_words: Ints


def find_sorted(keys: Ints, values: Ints) -> Ints:
    """Return positions of values in distinct ascending ``keys``, -1 if absent."""
    if not len(keys):
        return np.full(len(values), -1)
    positions = np.minimum(np.searchsorted(keys, values), len(keys) - 1)
    return np.where(keys[positions] == values, positions, -1)


def ranges(starts: Ints, sizes: Ints) -> Ints:
    """Concatenate the ranges ``starts[i], ..., starts[i] + sizes[i] - 1`` in one array."""
    ends = np.cumsum(sizes)
    return np.repeat(starts - ends + sizes, sizes) + np.arange(ends[-1] if len(ends) else 0)


def count_ngrams(captions: Sequence[str]) -> NgramCounts:
    """Count all n-grams of 1 to 4 words in tokenized captions."""
    tokens = [caption.split() for caption in captions]
    num_words = np.fromiter(map(len, tokens), np.int64, len(tokens))
    words = tuple(sorted(set(chain.from_iterable(tokens))))
    numbers = dict(zip(words, range(len(words)), strict=True))
    total = int(num_words.sum())
    text = np.fromiter(map(numbers.__getitem__, chain.from_iterable(tokens)), np.int64, total)
    caption = np.repeat(np.arange(len(tokens)), num_words)
    remaining = np.cumsum(num_words)[caption] - np.arange(total)  # words from here to the end
    grams, keys, positions = [text], [], [np.arange(total)]
    for order in range(1, ORDERS):
        positions.append(np.flatnonzero(remaining > order))
        pairs = grams[-1][positions[-1]] * len(words) + text[positions[-1] + order]
        distinct, inverse = np.unique(pairs, return_inverse=True)
        keys.append(distinct)
        grams.append(np.zeros(total, dtype=np.int64))
        grams[-1][positions[-1]] = inverse
    table = NgramTable(words=words, keys=tuple(keys))
    size = max(1, int(table.starts[-1]))
    parts = zip(positions, grams, table.starts, strict=False)
    entries = [caption[where] * size + gram[where] + start for where, gram, start in parts]
    distinct, count = np.unique(np.concatenate(entries), return_counts=True)
    caption, gram = np.divmod(distinct, size)
    return NgramCounts(table=table, caption=caption, gram=gram, count=count, num_words=num_words)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CiderStatistics:
    """Document frequencies: the number of images whose references contain an n-gram.

    N-grams of only one image are left out: they have the weight of unknown n-grams.

    Attributes:
        table: n-grams that occur in at least two images.
        frequency: ``(G,)`` number of images with each n-gram.
        num_images: number of images; its logarithm is the weight of a rare n-gram.
        source: description of the counted texts, such as ``"flickr8k train, tokenize_python"``.
    """

    table: NgramTable
    frequency: Ints
    num_images: int
    source: str

    @classmethod
    def count(cls, references: Sequence[Sequence[str]], *, source: str) -> Self:
        """Count document frequencies in the tokenized references of each image.

        Raises:
            ValueError: no images, or every reference is empty.
        """
        counts = count_ngrams(list(chain.from_iterable(references)))
        return cls.of_counts(counts, number_images(references), source=source)

    @classmethod
    def of_counts(cls, counts: NgramCounts, image: Ints, *, source: str) -> Self:
        """Build from counted references; ``image (B,)`` is each reference's image number."""
        size = int(counts.table.starts[-1])
        if not size:
            raise ValueError("CIDEr needs references: all are missing, or empty after tokenization")
        pairs = np.sort(image[counts.caption] * size + counts.gram)  # np.unique would hash: slow
        pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])]
        frequency = np.bincount(pairs % size, minlength=size)
        shared = frequency > 1
        table, num_images = counts.table.keep(shared), int(image.max()) + 1
        return cls(table=table, frequency=frequency[shared], num_images=num_images, source=source)

    def digest(self) -> str:
        """SHA-256 of the counts (16 hex digits), independent of the order of images."""
        digest = hashlib.sha256(f"{_FORMAT} {self.num_images}\n".encode())
        for array in self._arrays().values():
            digest.update(array.tobytes())
        return digest.hexdigest()[:16]

    def settings(self) -> dict[str, Any]:
        """Return settings to store with scores: ``source``, ``digest`` and ``num_images``."""
        return {"source": self.source, "digest": self.digest(), "num_images": self.num_images}

    def inverse_frequency(self, table: NgramTable) -> Floats:
        """Return weights of a table's n-grams, log(images / max(1, frequency)): ``(G,)``."""
        frequency = np.append(self.frequency, 1)[self.table.locate(table)]  # absent (-1): the last
        return np.log(self.num_images) - np.log(frequency)

    def save(self, path: str | Path) -> None:
        """Write a reproducible compressed ``.npz`` file without pickled objects."""
        head = np.array([_FORMAT, str(self.num_images), self.source, self.digest()])
        file = io.BytesIO()
        arrays: dict[str, Any] = self._arrays()
        np.savez_compressed(file, head=head, **arrays)
        write_atomically(path, lambda part: part.write_bytes(file.getvalue()))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` wrote.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError: the file is damaged or has another format.
        """
        content = io.BytesIO(Path(path).read_bytes())
        try:
            with np.load(content, allow_pickle=False) as file:
                name, num_images, source, digest = file["head"].tolist()
                arrays = {key: file[key] for key in file.files}
            words = arrays["words"].tobytes().decode("utf-8", "surrogatepass").split("\n")
            keys = tuple(arrays[f"keys_{order}"] for order in range(2, ORDERS + 1))
            table = NgramTable(words=tuple(words) if words != [""] else (), keys=keys)
            frequency = arrays["frequency"]
            saved = cls(table=table, frequency=frequency, num_images=int(num_images), source=source)
            if name != _FORMAT or saved.digest() != digest:
                raise ValueError("the file's content does not match its digest")
        except (*_DAMAGE, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{path}: invalid CIDEr statistics ({error}); count again") from error
        return saved

    def _arrays(self) -> dict[str, NDArray[Any]]:
        text = "\n".join(self.table.words).encode("utf-8", "surrogatepass")
        keys = {f"keys_{order}": keys for order, keys in enumerate(self.table.keys, start=2)}
        return {"words": np.frombuffer(text, np.uint8), **keys, "frequency": self.frequency}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CaptionVectors:
    """Tf-idf vectors of captions, for each n with length 1 (or 0): ``weight (E,)``."""

    counts: NgramCounts
    weight: Floats

    @classmethod
    def build(cls, counts: NgramCounts, statistics: CiderStatistics) -> Self:
        """Compute weights from counts: count × inverse frequency, divided by the norm."""
        values = counts.count * statistics.inverse_frequency(counts.table)[counts.gram]
        vector = counts.caption * ORDERS + counts.table.orders()[counts.gram]
        norms = np.sqrt(np.bincount(vector, values**2))[vector] if len(vector) else values
        weight = np.divide(values, norms, out=np.zeros_like(values), where=norms > 0)
        return cls(counts=counts, weight=weight)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CiderReferences:
    """References of I images as tf-idf vectors.

    Attributes:
        statistics: document frequencies that weight the n-grams.
        table: n-grams of the references.
        keys: ``(K,)`` ascending: image × G + n-gram, for all n-grams of an image's references.
        starts: ``(K + 1,)`` start of each key's entries.
        column, count, weight: ``(E,)`` reference number within the image, count of the n-gram in
            that reference, and its weight.
        num_words: ``(I, R)`` length of each reference.
        num_references: ``(I,)`` number of references, at most R.
    """

    statistics: CiderStatistics
    table: NgramTable
    keys: Ints
    starts: Ints
    column: Ints
    count: Ints
    weight: Floats
    num_words: Ints
    num_references: Ints

    @classmethod
    def prepare(
        cls, references: Sequence[Sequence[str]], statistics: CiderStatistics | None = None
    ) -> Self:
        """Prepare tokenized references; default statistics are those of the references.

        Raises:
            ValueError: an image without references, or all of them empty.
        """
        counts = count_ngrams(list(chain.from_iterable(references)))
        image = number_images(references)
        if statistics is None:
            statistics = CiderStatistics.of_counts(counts, image, source="the references scored")
        vectors = CaptionVectors.build(counts, statistics)
        return cls.choose(vectors, np.arange(len(image)), image, statistics)

    @classmethod
    def choose(
        cls, vectors: CaptionVectors, captions: Ints, image: Ints, statistics: CiderStatistics
    ) -> Self:
        """Select some captions of a collection as references.

        Args:
            vectors: vectors of the whole collection, weighted by ``statistics``.
            captions: ``(R,)`` caption numbers in the collection, repeats allowed.
            image: ``(R,)`` image number of each reference, ascending from 0 without gaps.
            statistics: statistics that the vectors were built with.
        """
        counts, size = vectors.counts, max(1, int(vectors.counts.table.starts[-1]))
        num_references = np.bincount(image)
        column = np.arange(len(image)) - (np.cumsum(num_references) - num_references)[image]
        num_words = np.zeros((len(num_references), int(num_references.max())), dtype=np.int64)
        num_words[image, column] = counts.num_words[captions]
        first, end = (np.searchsorted(counts.caption, captions, side) for side in ("left", "right"))
        entries, owner = ranges(first, end - first), np.repeat(np.arange(len(image)), end - first)
        key = image[owner] * size + counts.gram[entries]
        order = np.argsort(key, kind="stable")
        keys, starts = np.unique(key[order], return_index=True)
        return cls(
            statistics=statistics,
            table=counts.table,
            keys=keys,
            starts=np.append(starts, len(key)),
            column=column[owner[order]],
            count=counts.count[entries[order]],
            weight=vectors.weight[entries[order]],
            num_words=num_words,
            num_references=num_references,
        )

    def similarities(
        self, vectors: CaptionVectors, images: Ints, variant: str = "CIDEr-D"
    ) -> Floats:
        """Score B captions, weighted by the same statistics, against each reference.

        Returns ``(B, R)`` in [0, 10] for ``images (B,)``, 0 beyond the image's last reference.
        """
        if variant not in VARIANTS:
            raise ValueError(f"variant must be one of {VARIANTS}: got {variant!r}")
        counts, size = vectors.counts, max(1, int(self.table.starts[-1]))
        gram = self.table.locate(counts.table)[counts.gram]
        key = np.where(gram < 0, -1, images[counts.caption] * size + gram)
        positions = find_sorted(self.keys, key)
        entry = np.flatnonzero(positions >= 0)
        number = np.diff(self.starts)[positions[entry]]
        matches = ranges(self.starts[positions[entry]], number)
        entry = np.repeat(entry, number)
        product = vectors.weight[entry] * self.weight[matches]
        if variant == "CIDEr-D":
            product *= np.minimum(1.0, self.count[matches] / counts.count[entry])
        shape = (len(images), self.num_words.shape[1])
        cell = counts.caption[entry] * shape[1] + self.column[matches]
        sums = np.bincount(cell, product, shape[0] * shape[1])
        scores: Floats = sums.reshape(shape).astype(np.float64, copy=False) * (10 / ORDERS)
        if variant == "CIDEr-D":
            longer = counts.num_words[:, None] - self.num_words[images]
            scores *= np.exp(-(longer**2) / (2 * SIGMA**2))
        return scores

    def score(
        self,
        captions: Sequence[str],
        images: Ints | Sequence[int] | None = None,
        *,
        variant: str = "CIDEr-D",
    ) -> Floats:
        """Return the mean similarity of each caption to its image's references, in [0, 10].

        CIDEr (section 5) is the mean cosine of tf-idf vectors over n = 1 to 4. CIDEr-D
        (section 6) clips counts at the reference's and penalises differences in length
        (sigma 6). Both are multiplied by 10, without stemming, as in the authors' code.

        Args:
            captions: ``B`` tokenized captions; an empty one scores 0.
            images: ``(B,)`` image number of each caption; by default one caption per image.
            variant: ``"CIDEr-D"`` or ``"CIDEr"``.

        Raises:
            ValueError: an unknown variant, or images that do not match the captions.
        """
        num_images = len(self.num_references)
        numbers = np.arange(num_images) if images is None else np.asarray(images, dtype=np.int64)
        if numbers.shape != (len(captions),) or not np.all((numbers >= 0) & (numbers < num_images)):
            raise ValueError(
                f"images must give each of {len(captions)} captions an image number from 0 to "
                f"{num_images - 1}: got shape {numbers.shape}"
            )
        scores = np.zeros(len(captions))
        for start in range(0, len(captions), _BLOCK):
            part = slice(start, start + _BLOCK)
            vectors = CaptionVectors.build(count_ngrams(captions[part]), self.statistics)
            scores[part] = self.similarities(vectors, numbers[part], variant).sum(1)
        return scores / self.num_references[numbers]


def number_images(captions: Sequence[Sequence[str]]) -> Ints:
    """Return the image number of each caption, for captions grouped by image."""
    sizes = np.array([len(group) for group in captions], dtype=np.int64)
    if not sizes.all():
        raise ValueError(f"every image must have a caption: image {sizes.argmin()} has none")
    return np.repeat(np.arange(len(sizes)), sizes)
