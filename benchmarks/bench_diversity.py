"""Self-CIDEr of several captions an image: pair by pair as it is usually computed, and ours.

    python benchmarks/bench_diversity.py [--images 5000] [--captions 5] [--peer-images 250]

The captions are generated: word frequencies as in natural text, captions of an image share topics.
The usual way, that of the authors' code, calls pycocoevalcap's CIDEr-D scorer for each pair of an
image's captions, with document frequencies counted before; it is timed on the first
``--peer-images`` and both ways must agree there. Ours counts n-grams and scores in one go; its time
begins with tokenized text. Seconds are of the processor, so that a machine in use by others is fair
to both. CIDEr-D of one caption an image against the others, prepared and not, is timed as well.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Sequence

import numpy as np
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.cider.cider_scorer import CiderScorer, cook_refs, cook_test

from captioning.metrics.cider import CiderReferences, CiderStatistics
from captioning.metrics.diversity import evaluate_diversity, self_cider

Groups = list[list[str]]


class Counted(list):
    """References of one image that pass for those of ``number`` images."""

    def __init__(self, references: Sequence[object], number: int) -> None:
        super().__init__(references)
        self.number = number

    def __len__(self) -> int:
        """What pycocoevalcap takes for the number of images."""
        return self.number


def generate(num_images: int, num_captions: int, seed: int = 0) -> Groups:
    """Captions of 8 to 13 words: half of them common to all images, half topics of the image."""
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


def pair_by_pair(groups: Groups, corpus: Groups) -> tuple[float, np.ndarray]:
    """The usual way: seconds an image, and scores."""
    counted = CiderScorer()
    for references in corpus:
        counted.cook_append("", references)
    counted.compute_doc_freq()
    start = time.process_time()
    scores = []
    for group in groups:
        kernel = np.zeros((len(group), len(group)))
        for i in range(len(group)):
            for j in range(i, len(group)):
                scorer = CiderScorer()
                scorer.document_frequency = counted.document_frequency
                scorer.ctest = [cook_test(group[i])]
                scorer.crefs = Counted([cook_refs([group[j]])], len(corpus))
                kernel[i, j] = kernel[j, i] = scorer.compute_cider()[0]
        roots = np.sqrt(np.linalg.svd(kernel)[1])
        scores.append(-np.log(roots.max() / roots.sum()) / np.log(len(group)))
    return (time.process_time() - start) / len(groups), np.array(scores)


def fastest(function: Callable[[], object], rounds: int = 3) -> tuple[float, object]:
    """Least processor seconds of several calls, and what the last one gave."""
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        found = function()
        seconds.append(time.process_time() - start)
    return min(seconds), found


def main() -> None:
    """Print seconds of each way and how far the scores differ."""
    parser = argparse.ArgumentParser(description="Benchmark of self-CIDEr.")
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--captions", type=int, default=5)
    parser.add_argument("--peer-images", type=int, default=250)
    chosen = parser.parse_args()
    print(f"{platform.machine()}, load {os.getloadavg()[0]:.1f}, numpy {np.__version__}, seconds "
          "of the processor")  # fmt: skip
    groups = generate(chosen.images, chosen.captions)
    seconds, statistics = fastest(lambda: CiderStatistics.count(groups, source="generated"))
    print(f"{chosen.images} images x {chosen.captions} captions, frequencies {seconds:.2f}")
    seconds, scores = fastest(lambda: self_cider(groups, statistics))
    an_image, usual = pair_by_pair(groups[: chosen.peer_images], groups)
    peer = an_image * chosen.images
    error = np.abs(usual - scores[: chosen.peer_images]).max()
    print(f"self-CIDEr: usual way {peer:.1f} (of {chosen.peer_images} images, scaled), ours "
          f"{seconds:.2f}, x {peer / seconds:.0f}, mean {scores.mean():.4f}, largest difference "
          f"{error:.0e}")  # fmt: skip
    named = {str(row): group for row, group in enumerate(groups)}
    seconds, _ = fastest(
        lambda: evaluate_diversity(named, statistics=statistics, tokenize=None), rounds=1
    )
    print(f"all diversity measures: {seconds:.2f}")
    measure_cider(groups)


def measure_cider(groups: Groups) -> None:
    """CIDEr-D of the first caption of each image against the others."""
    captions, references = [group[0] for group in groups], [group[1:] for group in groups]
    gts, res = dict(enumerate(references)), {row: [text] for row, text in enumerate(captions)}
    peer, (_, wanted) = fastest(lambda: Cider().compute_score(gts, res), rounds=1)
    prepare, prepared = fastest(lambda: CiderReferences.prepare(references))
    seconds, found = fastest(lambda: prepared.score(captions))
    print(f"CIDEr-D of {len(captions)} images: pycocoevalcap {peer:.2f}, ours {seconds:.3f} after "
          f"preparing for {prepare:.2f}, x {peer / seconds:.0f}, largest difference "
          f"{np.abs(found - wanted).max():.0e}")  # fmt: skip


if __name__ == "__main__":
    main()
