"""Benchmark self-CIDEr of several captions per image against two plain implementations.

    python benchmarks/bench_diversity.py [--images 5000] [--captions 5]

The captions are generated: word frequencies as in natural text, captions of an image share topics.
The first plain way is that of the authors' code: pycocoevalcap's CIDEr-D scorer is called for each
pair of an image's captions, with document frequencies counted before, and the singular values of
each image's matrix are taken. The second counts every caption's n-grams once, keeps its weights in
dictionaries and multiplies them pair by pair. Ours counts n-grams and scores in one go. All three
score all images, and must agree; all begin with tokenized text and given document frequencies.
Seconds are of the processor, so that a machine in use by others is fair to all. CIDEr-D of one
caption an image against the others, prepared and not, is timed as well.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.cider.cider_scorer import CiderScorer, cook_refs, cook_test

from captioning.metrics.cider import CiderReferences, CiderStatistics
from captioning.metrics.diversity import evaluate_diversity, self_cider

Groups = list[list[str]]
Gram = tuple[str, ...]
Vector = tuple[list[Counter[Gram]], list[dict[Gram, float]], int]


class Counted(list):
    """References of one image that report ``number`` images as their length."""

    def __init__(self, references: Sequence[object], number: int) -> None:
        super().__init__(references)
        self.number = number

    def __len__(self) -> int:
        """Number of images that pycocoevalcap reads."""
        return self.number


def generate(num_images: int, num_captions: int, seed: int = 0) -> Groups:
    """Captions of 8 to 13 words: half common to all images, half about the image."""
    draw = np.random.default_rng(seed)
    words = np.array([f"w{number}" for number in range(8000)])
    weights = 1 / np.arange(1, len(words) + 1)
    groups = []
    for _ in range(num_images):
        topics = draw.choice(words, 6, p=weights / weights.sum())
        common = draw.choice(words[:40], 10)
        pool = np.stack([np.resize(topics, 30), np.resize(common, 30)], axis=1).ravel()
        starts = draw.integers(0, 20, num_captions)
        sizes = draw.integers(8, 14, num_captions)
        texts = [
            pool[start : start + size].copy() for start, size in zip(starts, sizes, strict=True)
        ]
        for text in texts:
            text[:] = np.where(draw.random(len(text)) < 0.3, draw.choice(words, len(text)), text)
        groups.append([" ".join(text) for text in texts])
    return groups


def of_matrix(kernel: np.ndarray) -> float:
    """Self-CIDEr of a similarity matrix (Wang and Chan, 2019)."""
    roots = np.sqrt(np.linalg.svd(kernel)[1])
    return -np.log(roots.max() / roots.sum()) / np.log(len(kernel))


def count_corpus(corpus: Groups) -> CiderScorer:
    """Count document frequencies with pycocoevalcap."""
    counted = CiderScorer()
    for references in corpus:
        counted.cook_append("", references)
    counted.compute_doc_freq()
    return counted


def pair_by_pair(groups: Groups, counted: CiderScorer) -> np.ndarray:
    """The authors' implementation: one scorer call for each pair."""
    scores = []
    for group in groups:
        kernel = np.zeros((len(group), len(group)))
        for i in range(len(group)):
            for j in range(i, len(group)):
                scorer = CiderScorer()
                scorer.document_frequency = counted.document_frequency
                scorer.ctest = [cook_test(group[i])]
                scorer.crefs = Counted([cook_refs([group[j]])], len(groups))
                kernel[i, j] = kernel[j, i] = scorer.compute_cider()[0]
        scores.append(of_matrix(kernel))
    return np.array(scores)


def weighed(caption: str, frequency: Mapping[Gram, float], images: int) -> Vector:
    """Counts and unit tf-idf weights of a caption's n-grams for n = 1 to 4, and its length."""
    counts, weights = [], []
    words = caption.split()
    for n in range(1, 5):
        ngrams = Counter(zip(*(words[start:] for start in range(n)), strict=False))
        values = {
            gram: number * (math.log(images) - math.log(max(1.0, frequency.get(gram, 0.0))))
            for gram, number in ngrams.items()
        }
        norm = math.sqrt(sum(value * value for value in values.values()))
        counts.append(ngrams)
        weights.append({gram: value / norm if norm else 0.0 for gram, value in values.items()})
    return counts, weights, len(words)


def vector_by_vector(groups: Groups, counted: CiderScorer) -> np.ndarray:
    """Simple implementation that counts each caption once."""
    scores = []
    for group in groups:
        vectors = [weighed(text, counted.document_frequency, len(groups)) for text in group]
        kernel = np.zeros((len(group), len(group)))
        for i, (counts, weights, length) in enumerate(vectors):
            for j, (others, theirs, their_length) in enumerate(vectors[i:], start=i):
                total = sum(
                    weight * min(1.0, other[gram] / count[gram]) * their[gram]
                    for count, mine, other, their in zip(
                        counts, weights, others, theirs, strict=True
                    )
                    for gram, weight in mine.items()
                    if gram in their
                )
                penalty = math.exp(-((length - their_length) ** 2) / 72)
                kernel[i, j] = kernel[j, i] = 10 / 4 * total * penalty
        scores.append(of_matrix(kernel))
    return np.array(scores)


def fastest(function: Callable[[], object], rounds: int = 3) -> tuple[float, object]:
    """Minimum CPU seconds of several calls, and the last result."""
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        result = function()
        seconds.append(time.process_time() - start)
    return min(seconds), result


def main() -> None:
    """Print the seconds of each implementation and the differences of scores."""
    parser = argparse.ArgumentParser(description="Benchmark of self-CIDEr.")
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--captions", type=int, default=5)
    chosen = parser.parse_args()
    print(f"{platform.machine()}, load {os.getloadavg()[0]:.1f}, numpy {np.__version__}, seconds "
          "of the processor")  # fmt: skip
    groups = generate(chosen.images, chosen.captions)
    seconds, statistics = fastest(lambda: CiderStatistics.count(groups, source="generated"))
    print(f"{chosen.images} images x {chosen.captions} captions, frequencies {seconds:.2f}")
    seconds, scores = fastest(lambda: self_cider(groups, statistics))
    print(f"self-CIDEr, ours: {seconds:.2f}, mean {scores.mean():.4f}")
    counted = count_corpus(groups)
    for method in (pair_by_pair, vector_by_vector):
        peer, expected = fastest(lambda method=method: method(groups, counted), rounds=1)
        print(f"self-CIDEr, {method.__name__}: {peer:.1f}, x {peer / seconds:.0f} of ours, largest "
              f"difference {np.abs(expected - scores).max():.0e}")  # fmt: skip
    named = {str(row): group for row, group in enumerate(groups)}
    seconds, _ = fastest(
        lambda: evaluate_diversity(named, statistics=statistics, tokenize=None), rounds=1
    )
    print(f"all diversity measures: {seconds:.2f}")
    measure_cider(groups)


def measure_cider(groups: Groups) -> None:
    """CIDEr-D of each image's first caption against its other captions."""
    captions, references = [group[0] for group in groups], [group[1:] for group in groups]
    gts, res = dict(enumerate(references)), {row: [text] for row, text in enumerate(captions)}
    peer, (_, expected) = fastest(lambda: Cider().compute_score(gts, res), rounds=1)
    prepare, prepared = fastest(lambda: CiderReferences.prepare(references))
    seconds, scores = fastest(lambda: prepared.score(captions))
    print(f"CIDEr-D of {len(captions)} images: pycocoevalcap {peer:.2f}, ours {seconds:.3f} after "
          f"preparing for {prepare:.2f}, x {peer / seconds:.0f}, largest difference "
          f"{np.abs(scores - expected).max():.0e}")  # fmt: skip


if __name__ == "__main__":
    main()
