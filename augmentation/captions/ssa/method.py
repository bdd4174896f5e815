"""Structured semantic augmentation: new captions, each of a part of a photo (section 4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from augmentation.captions.ssa.filters import (
    DUPLICATE,
    ILL_FORMED,
    NOT_SAID,
    CrossFittedScores,
    Rules,
)
from augmentation.captions.ssa.frames import Frames
from augmentation.captions.ssa.graph import Graph
from augmentation.captions.ssa.grounding import ground
from augmentation.captions.ssa.merging import Merging
from augmentation.captions.ssa.nouns import NounForms
from augmentation.captions.ssa.parser import read_words
from augmentation.captions.ssa.realiser import STYLES, Caption, Realiser, caption_of
from augmentation.captions.ssa.sampling import Sampler
from augmentation.captions.ssa.similarity import WordSimilarity
from augmentation.captions.ssa.words import words_of
from augmentation.regions.proposal import draw_key
from captioning.data.added_captions import focus
from captioning.data.roster import Roster
from captioning.interfaces import AbstractLanguageModel, AbstractParser, AbstractWordVectors
from captioning.types import Phrase, Sample

PARSED_AT_ONCE = 4096
MORE = "more than wanted of a photo"
UNREADABLE = "caption without a graph"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCaption:
    """A caption that was made.

    Attributes:
        sample: one of the photo's own, for its id, path and regions.
        text: the caption.
        phrases: what it names where.
        graph: what it says.
        score: its well-formedness, in [0, 1].
    """

    sample: Sample
    text: str
    phrases: tuple[Phrase, ...]
    graph: Graph
    score: float


class Ssa:
    """Makes captions for the photos of a roster.

    Args:
        parser: of captions: words, tags and dependencies.
        vectors: of words, to tell synonyms.
        rules: which captions are kept.
        most: captions of small parts a photo, drawn at random.
        rounds: times that all events of a photo are sampled.
        detail: probability that something optional is said of a thing.
        small: coverage, in [0, 1], below which a caption is of a small part of its photo.
        broad: captions of larger parts are kept until a photo has so many captions.
        least_similar, least_similar_beside: see `Merging`.
        language_model: judges well-formedness; None for trigrams of the roster's captions.
        seed: of all draws.

    Raises:
        ValueError: settings out of their ranges.
    """

    def __init__(
        self,
        *,
        parser: AbstractParser,
        vectors: AbstractWordVectors,
        rules: Rules,
        most: int = 8,
        rounds: int = 3,
        detail: float = 0.5,
        small: float = 0.3,
        broad: int = 2,
        least_similar: float = 0.7,
        least_similar_beside: float = 0.5,
        language_model: AbstractLanguageModel | None = None,
        seed: int = 0,
    ) -> None:
        if min(most, rounds) < 1 or broad < 0 or not (0 <= detail <= 1 and 0 <= small <= 1):
            raise ValueError(
                "method.most and method.rounds must be at least 1, method.broad at least 0, "
                "method.detail and method.small in [0, 1]: "
                f"got {most}, {rounds}, {broad}, {detail} and {small}"
            )
        self.parser, self.rules, self.most, self.rounds = parser, rules, most, rounds
        self.detail, self.small, self.broad, self.seed = detail, small, broad, seed
        self.language_model = language_model
        self.merging = Merging(
            similarity=WordSimilarity(vectors),
            least_similar=least_similar,
            least_similar_beside=least_similar_beside,
        )
        self._refused: Counter[str] = Counter()

    def captions(self, roster: Roster) -> Iterator[list[NewCaption]]:
        """New captions of each photo, in the roster's order; depends on its captions and the seed.

        Raises:
            ValueError: no phrase of the roster has a box.
        """
        if not any(phrase.regions for sample in roster.samples for phrase in sample.phrases):
            raise ValueError(
                f"{roster.name}: no phrase of its captions has a box: method=ssa needs captions "
                "with boxes, such as data=flickr8k_entities or data=miniworld"
            )
        self._refused.clear()
        graphs = self._graphs(roster)
        everything = [graph for found in graphs.values() for graph in found]
        nouns, frames = NounForms(everything), Frames(everything)
        scores = CrossFittedScores(roster, language_model=self.language_model, seed=self.seed)
        for image_id, rows in roster.rows_by_image.items():
            sample = roster.samples[rows[0]]
            own = {self._plain(roster.samples[row].caption) for row in rows}
            found = self._of_photo(sample, graphs[image_id], nouns, frames, own)
            kept = self._well_formed(found, scores)
            yield self._drawn(kept)

    def report(self) -> dict[str, Any]:
        """What was left out why, after `captions` has ended."""
        return {"left out, by reason": dict(sorted(self._refused.items()))}

    def _graphs(self, roster: Roster) -> dict[str, list[Graph]]:
        """Grounded graphs of the captions by image; those that do not parse are counted."""
        found: dict[str, list[Graph]] = {image_id: [] for image_id in roster.rows_by_image}
        for start in range(0, len(roster), PARSED_AT_ONCE):
            part = roster.samples[start : start + PARSED_AT_ONCE]
            parses = self.parser.parse([sample.caption for sample in part])
            for sample, parse in zip(part, parses, strict=True):
                words = words_of(sample.caption, parse)
                graph = read_words(words)
                if graph is None:
                    self._refused[UNREADABLE] += 1
                else:
                    found[sample.image_id].append(ground(graph, words, sample.phrases))
        return found

    def _of_photo(
        self, sample: Sample, graphs: Sequence[Graph], nouns: NounForms, frames: Frames,
        own: set[str],
    ) -> list[NewCaption]:  # fmt: skip
        """Candidates of a photo that pass all filters but that of well-formedness."""
        if not graphs:
            return []
        whole = self.merging.merge_all(graphs)
        key = int(draw_key(self.seed, "ssa", sample.image_id), 16)
        rng = np.random.default_rng(key)
        seen = {name.word for node in whole.nodes.values() for name in node.names}
        found: dict[str, NewCaption] = {}
        for _ in range(self.rounds):
            for graph in Sampler(whole, rng, detail=self.detail).samples():
                made = self._made(sample, graph, nouns, rng)
                if made is None:
                    self._refused[NOT_SAID] += 1
                    continue
                problem = self.rules.problem(graph, made.text, frames, seen)
                if not problem and self._plain(made.text) in {*found, *own}:
                    problem = DUPLICATE
                if problem:
                    self._refused[problem] += 1
                else:
                    found[self._plain(made.text)] = made
        return list(found.values())

    def _made(
        self, sample: Sample, graph: Graph, nouns: NounForms, rng: np.random.Generator
    ) -> NewCaption | None:
        style = STYLES[int(rng.integers(len(STYLES)))]
        try:
            said = caption_of(Realiser(graph=graph, style=style, nouns=nouns).pieces())
        except ValueError:
            return None
        phrases = phrases_of(said, graph)
        return NewCaption(sample=sample, text=said.text, phrases=phrases, graph=graph, score=0.0)

    def _well_formed(
        self, found: Sequence[NewCaption], scores: CrossFittedScores
    ) -> list[NewCaption]:
        """Those that score high enough."""
        if not found:
            return []
        values = scores.score(found[0].sample.image_id, [one.text for one in found])
        kept = [
            replace(one, score=round(value, 4))
            for one, value in zip(found, values, strict=True)
            if value >= self.rules.least_well_formed
        ]
        self._refused[ILL_FORMED] += len(found) - len(kept)
        return kept

    def _drawn(self, found: Sequence[NewCaption]) -> list[NewCaption]:
        """At most `most` of small parts, and larger ones while there are fewer than `broad`."""
        order = sorted(
            found, key=lambda one: draw_key(self.seed, "drawn", one.sample.image_id, one.text)
        )
        small = [one for one in order if focus(_as_sample(one)) < self.small]
        large = [one for one in order if one not in small]
        kept = [*small[: self.most], *large[: max(self.broad - len(small), 0)]]
        self._refused[MORE] += len(found) - len(kept)
        return kept

    @staticmethod
    def _plain(caption: str) -> str:
        return " ".join(caption.lower().replace(".", " ").split())


def phrases_of(said: Caption, graph: Graph) -> tuple[Phrase, ...]:
    """The grounded phrases of a caption, as a data set has them."""
    return tuple(
        Phrase(
            start=start,
            text=text,
            chain_id=min(node.chains, default="0"),
            kinds=tuple(sorted(node.kinds)),
            regions=tuple(sorted(node.regions)),
        )
        for start, text, variable in said.mentions
        for node in (graph.nodes[variable],)
    )


def _as_sample(one: NewCaption) -> Sample:
    return replace(one.sample, caption=one.text, phrases=one.phrases)
