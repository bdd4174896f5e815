"""Score how much a caption differs from the image's other captions, without reading the image."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from captioning.config.ranges import PositiveInt
from captioning.interfaces import TextEmbedder
from captioning.text.word_forms import words_of
from curation.base import Context, Score


class AbstractLikeness(ABC):
    """Interface for the similarity of captions of one image.

    Attributes:
        name: name in reasons and reports.
    """

    name: str

    @abstractmethod
    def cosines(self, groups: Sequence[Sequence[str]]) -> list[Tensor]:
        """Cosines ``(k, k) float32`` between all k captions of each image."""


class SentenceLikeness(AbstractLikeness):
    """Cosine similarity of sentence embeddings.

    Args:
        sentences: the encoder. Its own training data may hold the captions (MiniLM's names COCO
            and Flickr30k), which flatters it on them.
    """

    name = "sentence embedding"

    def __init__(self, *, sentences: TextEmbedder) -> None:
        self._sentences = sentences

    def cosines(self, groups: Sequence[Sequence[str]]) -> list[Tensor]:
        """Cosines of sentence embeddings; all captions are embedded in one call."""
        vectors = self._sentences.embed_texts(
            [caption for group in groups for caption in group]
        ).float()
        return [part @ part.T for part in vectors.split([len(group) for group in groups])]


class WordLikeness(AbstractLikeness):
    """Cosine similarity of damped tf-idf word counts (Salton and Buckley, 1988).

    Uses only the captions passed to it: no encoder that may have seen them.
    """

    name = "words in common"

    def cosines(self, groups: Sequence[Sequence[str]]) -> list[Tensor]:
        """Cosines of word counts; rarity is counted over all given captions."""
        counts = [[Counter(words_of(caption)) for caption in group] for group in groups]
        bags = [bag for group in counts for bag in group]
        num_with = Counter(word for bag in bags for word in bag)
        rarity = {
            word: 1 + np.log((1 + len(bags)) / (1 + number)) for word, number in num_with.items()
        }
        return [_bag_cosines(group, rarity) for group in counts]


def _bag_cosines(bags: Sequence[Counter[str]], rarity: dict[str, float]) -> Tensor:
    place = {word: number for number, word in enumerate({w: None for bag in bags for w in bag})}
    vectors = np.zeros((len(bags), len(place)))
    for row, bag in enumerate(bags):
        for word, number in bag.items():
            vectors[row, place[word]] = (1 + np.log(number)) * rarity[word]
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors / np.where(length == 0, 1, length)  # a caption of no word is like nothing
    return torch.from_numpy((vectors @ vectors.T).astype(np.float32))


class Siblings(Score):
    """One minus the mean cosine of a caption to the image's most similar other captions.

    Args:
        likeness: likeness of captions.
        nearest: number of other captions that count, the most alike; None for all. An image may
            have several wrong captions: a sound caption is unlike those, but like the few sound
            ones, so a small number does better than all.

    Raises:
        ValueError: ``nearest`` below 1.
    """

    def __init__(self, *, likeness: AbstractLikeness, nearest: PositiveInt | None = 2) -> None:
        if nearest is not None and nearest < 1:
            raise ValueError(f"nearest must be at least 1, or null for all: got {nearest}")
        self.likeness, self.nearest = likeness, nearest
        self.name = f"distance to the image's other captions ({likeness.name})"

    def scores(self, context: Context) -> Tensor:
        """Scores in [0, 2]; NaN for removed samples and for the only caption of an image."""
        scores = torch.full((len(context.view.roster),), torch.nan)
        rows_of: dict[str, list[int]] = defaultdict(list)
        for row, sample in context.live.items():
            rows_of[sample.image_id].append(row)
        groups = [rows for rows in rows_of.values() if len(rows) > 1]
        if not groups:
            return scores
        captions = [[context.live[row].caption for row in rows] for rows in groups]
        for rows, cosines in zip(groups, self.likeness.cosines(captions), strict=True):
            other_cosines = cosines.clone().fill_diagonal_(-torch.inf)
            number = min(self.nearest or len(rows) - 1, len(rows) - 1)
            scores[rows] = 1 - other_cosines.topk(number, dim=1).values.mean(1)
        return scores
