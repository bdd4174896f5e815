"""Best-k diversity: the diversity of the k most diverse captions of an image.

Chen et al. (2020, ASG2Caption) and Basioti et al. (2024, Table 8) let a controllable captioner
write ten captions of an image with random controls. They select the five captions with the highest
Div-n, separately for each n; the score is the mean over images.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from captioning.metrics.coco import MetricResult
from captioning.metrics.diversity import Tokenize, check_texts, tokenized, tokenizer_name
from captioning.metrics.tokenizer import tokenize_python

NGRAMS = (1, 2)
MAX_SETS = 20_000  # all sets of 5 of 20 captions are 15,504


def best_diversity(
    captions: Mapping[str, Sequence[str]],
    *,
    k: int = 5,
    tokenize: Tokenize | None = tokenize_python,
) -> MetricResult:
    """Compute Div-1 and Div-2 of the most diverse ``k`` captions of each image.

    Div-n is the number of distinct n-grams over the number of words, as in
    `captioning.metrics.diversity`; a set without words has 0.

    Args:
        captions: raw captions, at least ``k`` per image.
        k: number of captions to select.
        tokenize: tokenizer such as `tokenize_python`; None: captions are already tokenized.

    Raises:
        TypeError: captions of an image that are not a list of texts.
        ValueError: no images, an image with fewer than ``k`` captions, or too many sets to try.
    """
    check_texts(captions, "captions")
    too_few = [image_id for image_id, group in captions.items() if len(group) < k]
    if not captions or too_few or k < 1:
        raise ValueError(
            f"best-{k} diversity needs at least {k} captions per image: got {too_few[:3]}"
        )
    sets = max(math.comb(len(group), k) for group in captions.values())
    if sets > MAX_SETS:
        raise ValueError(
            f"the captions of an image form {sets} sets of {k}, the maximum is {MAX_SETS}: "
            "give fewer captions"
        )
    flat = tokenized([text for group in captions.values() for text in group], tokenize)
    rest = iter(flat)
    per_image = {
        image_id: best_of([next(rest).split() for _ in group], k)
        for image_id, group in captions.items()
    }
    names = [f"Div-{n}" for n in NGRAMS]
    return MetricResult(
        corpus={n: float(np.mean([scores[n] for scores in per_image.values()])) for n in names},
        per_image=per_image,
        settings={
            "tokenizer": tokenizer_name(tokenize),
            "best": k,
            "num_images": len(captions),
            "num_captions": len(flat),
            "missing": {},
        },
    )


def best_of(captions: Sequence[Sequence[str]], k: int) -> dict[str, float]:
    """Return the highest Div-n over all sets of ``k`` captions, given as words."""
    sets = np.array(list(combinations(range(len(captions)), k)))
    num_words = np.array([len(words) for words in captions])[sets].sum(1)
    scores = {}
    for n in NGRAMS:
        ngrams = [
            set(zip(*(words[start:] for start in range(n)), strict=False)) for words in captions
        ]
        columns = {gram: column for column, gram in enumerate(set().union(*ngrams))}
        present = np.zeros((len(captions), len(columns)), dtype=bool)
        for row, grams in zip(present, ngrams, strict=True):
            row[[columns[gram] for gram in grams]] = True
        distinct = present[sets].any(1).sum(1)
        scores[f"Div-{n}"] = float((distinct / np.maximum(1, num_words)).max())
    return scores
