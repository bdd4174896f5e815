"""Structured semantic augmentation: new captions, each of a part of a photo (section 4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

import numpy as np

from augmentation.captions.new_captions import AbstractCaptionMethod, NewCaption, PhotoCaptions
from augmentation.captions.ssa.alignment import aligned, caption_by_words
from augmentation.captions.ssa.amr_models import AbstractGraphParser, AbstractGraphWriter
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
from augmentation.captions.ssa.joining import joined
from augmentation.captions.ssa.merging import Merging
from augmentation.captions.ssa.nouns import NounForms
from augmentation.captions.ssa.parser import read_words
from augmentation.captions.ssa.penman import write_penman
from augmentation.captions.ssa.realiser import STYLES, STYLES_OF_SEVERAL, Realiser
from augmentation.captions.ssa.sampling import Sampler
from augmentation.captions.ssa.sentences import Caption, caption_of
from augmentation.captions.ssa.similarity import WordSimilarity
from augmentation.captions.ssa.words import words_of
from augmentation.regions.proposal import draw_key
from captioning.data.roster import Roster
from captioning.data.steps.added_captions import focus
from captioning.interfaces import AbstractLanguageModel, AbstractParser, AbstractWordVectors
from captioning.ranges import Cosine, Fraction, NonNegativeInt, PositiveInt, Seed
from captioning.text.entities import as_sentence
from captioning.text.parts import NOUNS
from captioning.types import Phrase, Sample

PARSED_AT_ONCE = 4096
TRIES = 8  # orders in which events are joined, a long caption that is wanted
MORE = "more than wanted of a photo"
UNREADABLE = "caption without a graph"


@dataclass(kw_only=True)
class _Read:
    """What the captions of a photo say: graphs, and lemmas of nouns; and how many do not parse."""

    graphs: list[Graph] = field(default_factory=list)
    nouns: set[str] = field(default_factory=set)
    unreadable: int = 0


class Ssa(AbstractCaptionMethod):
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
        long: words from which on a caption is long.
        most_long: long captions a photo, of several events (`joined`; by the rules alone), whose
            lengths are drawn evenly from `long` to `longest`, as far as there are any near them.
        longest: words of a long caption.
        least_similar, least_similar_beside: see `Merging`.
        language_model: judges well-formedness; None for trigrams of the roster's captions.
        graph_parser: makes the captions' graphs; None for the rules of `read_words`.
        graph_writer: says the samples; None for the rules of `Realiser`.
        seed: of all draws.

    Raises:
        ValueError: settings out of their ranges.
    """

    description = "captions of parts of photos by structured semantic augmentation"

    def __init__(
        self,
        *,
        parser: AbstractParser,
        vectors: AbstractWordVectors,
        rules: Rules,
        most: NonNegativeInt = 8,
        rounds: PositiveInt = 3,
        detail: Fraction = 0.5,
        small: Fraction = 0.3,
        broad: NonNegativeInt = 2,
        long: PositiveInt = 14,
        most_long: NonNegativeInt = 0,
        longest: PositiveInt = 30,
        least_similar: Cosine = 0.7,
        least_similar_beside: Cosine = 0.5,
        language_model: AbstractLanguageModel | None = None,
        graph_parser: AbstractGraphParser | None = None,
        graph_writer: AbstractGraphWriter | None = None,
        seed: Seed = 0,
    ) -> None:
        if min(most, rounds) < 1 or broad < 0 or not (0 <= detail <= 1 and 0 <= small <= 1):
            raise ValueError(
                "method.most and method.rounds must be at least 1, method.broad at least 0, "
                "method.detail and method.small in [0, 1]: "
                f"got {most}, {rounds}, {broad}, {detail} and {small}"
            )
        if most_long < 0 or not 1 <= long <= longest:
            raise ValueError(
                "method.most_long must be at least 0, method.long at least 1 and at most "
                f"method.longest: got {most_long}, {long} and {longest}"
            )
        self.parser, self.rules, self.most, self.rounds = parser, rules, most, rounds
        self.detail, self.small, self.broad, self.seed = detail, small, broad, seed
        self.long, self.most_long, self.longest = long, most_long, longest
        self.language_model = language_model
        self.graph_parser, self.graph_writer = graph_parser, graph_writer
        self.merging = Merging(
            similarity=WordSimilarity(vectors),
            least_similar=least_similar,
            least_similar_beside=least_similar_beside,
        )

    def captions(self, roster: Roster, *, skip: int = 0) -> Iterator[PhotoCaptions]:
        """See `AbstractCaptionMethod`.

        Raises:
            ValueError: no phrase of the roster has a box.
        """
        if not any(phrase.regions for sample in roster.samples for phrase in sample.phrases):
            raise ValueError(
                f"{roster.name}: no phrase of its captions has a box: method=ssa needs captions "
                "with boxes, such as data=flickr8k_entities or data=miniworld"
            )
        read = self._read(roster)
        everything = [graph for of_image in read.values() for graph in of_image.graphs]
        nouns, frames = NounForms(everything), Frames(everything)
        scores = CrossFittedScores(roster, language_model=self.language_model, seed=self.seed)
        for image_id, rows in islice(roster.rows_by_image.items(), skip, None):
            refused = Counter({UNREADABLE: read[image_id].unreadable})
            sample = roster.samples[rows[0]]
            own = {self._plain(roster.samples[row].caption) for row in rows}
            candidates = self._of_photo(sample, read[image_id], nouns, frames, own, refused)
            kept = self._well_formed(candidates, scores, refused)
            yield PhotoCaptions(captions=self._drawn(kept, refused), refused=+refused)

    def _read(self, roster: Roster) -> dict[str, _Read]:
        """Grounded graphs of the captions, and their nouns, by image."""
        by_image = {image_id: _Read() for image_id in roster.rows_by_image}
        for start in range(0, len(roster), PARSED_AT_ONCE):
            part = roster.samples[start : start + PARSED_AT_ONCE]
            captions = [sample.caption for sample in part]
            read = [None] * len(part)
            if self.graph_parser is not None:
                read = self.graph_parser.graphs(captions)
            for sample, parse, meaning in zip(part, self.parser.parse(captions), read, strict=True):
                words, own = words_of(sample.caption, parse), by_image[sample.image_id]
                own.nouns.update(token.lemma for token in words.tokens if token.pos in NOUNS)
                if self.graph_parser is None:
                    graph = read_words(words)
                else:
                    graph = meaning and aligned(meaning, words)
                if graph is None:
                    own.unreadable += 1
                else:
                    own.graphs.append(ground(graph, words, sample.phrases))
        return by_image

    def _of_photo(
        self, sample: Sample, read: _Read, nouns: NounForms, frames: Frames,
        own: set[str], refused: Counter[str],
    ) -> list[NewCaption]:  # fmt: skip
        """Candidates of a photo that pass all filters but that of well-formedness."""
        if not read.graphs:
            return []
        merged = self.merging.merge_all(read.graphs)
        key = int(draw_key(self.seed, "ssa", sample.image_id), 16)
        rng = np.random.default_rng(key)
        captions: dict[str, NewCaption] = {}
        good: list[Graph] = []
        details = [self.detail] * self.rounds
        details += [1.0] * self.rounds if self.most_long else []  # for long ones, with all there is
        samplers = (Sampler(merged, rng, detail=detail) for detail in details)
        samples = chain.from_iterable(sampler.samples() for sampler in samplers)
        several: Iterable[Graph] = ()
        if self.most_long:
            several = joined(good, rng, tries=self.most_long * TRIES)  # when the others are there
        for graph, caption in self._said(chain(samples, several), nouns, rng):
            if caption is None:
                refused[NOT_SAID] += 1
                continue
            new = _new_caption(sample, graph, caption)
            problem = self.rules.problem(
                graph, caption, frames, seen=read.nouns, similarity=self.merging.similarity
            )
            if not problem and self._plain(new.text) in {*captions, *own}:
                problem = DUPLICATE
            if problem:
                refused[problem] += 1
            else:
                captions[self._plain(new.text)] = new
                good.append(graph)
        return list(captions.values())

    def _said(
        self, graphs: Iterable[Graph], nouns: NounForms, rng: np.random.Generator
    ) -> Iterator[tuple[Graph, Caption | None]]:
        """Each graph with a sentence that says it, None where it cannot be said."""
        if self.graph_writer is not None:
            yield from self._written(self.graph_writer, list(graphs))
            return
        for graph in graphs:
            several = not graph.nodes[graph.root].is_predicate
            styles = STYLES_OF_SEVERAL if several else STYLES
            style = styles[int(rng.integers(len(styles)))]
            try:
                caption = caption_of(Realiser(graph=graph, style=style, nouns=nouns).pieces())
            except ValueError:
                caption = None
            yield graph, caption

    def _written(
        self, writer: AbstractGraphWriter, graphs: Sequence[Graph]
    ) -> Iterator[tuple[Graph, Caption | None]]:
        """The same by another model, whose sentences have to name what the graph has."""
        words_alike = {"similarity": self.merging.similarity, "least": self.rules.least_like}
        answers = writer.sentences(graphs)
        texts = [as_sentence(text) if any(map(str.isalpha, text)) else "" for text in answers]
        parses = iter(self.parser.parse([text for text in texts if text]))
        for graph, text in zip(graphs, texts, strict=True):
            caption = None
            if text:
                try:
                    words = words_of(text, next(parses))
                    caption = caption_by_words(graph, text, words, **words_alike)
                except ValueError:
                    caption = None
            yield graph, caption

    def _well_formed(
        self, candidates: Sequence[NewCaption], scores: CrossFittedScores, refused: Counter[str]
    ) -> list[NewCaption]:
        """Those that score high enough."""
        if not candidates:
            return []
        texts = [caption.text for caption in candidates]
        values = scores.score(candidates[0].sample.image_id, texts)
        kept = [
            replace(caption, score=round(value, 4))
            for caption, value in zip(candidates, values, strict=True)
            if value >= self.rules.least_well_formed
        ]
        refused[ILL_FORMED] += len(candidates) - len(kept)
        return kept

    def _drawn(self, candidates: Sequence[NewCaption], refused: Counter[str]) -> list[NewCaption]:
        """At most `most` of small parts, larger ones up to `broad` captions, and long ones."""
        order = sorted(
            candidates,
            key=lambda new: draw_key(self.seed, "drawn", new.sample.image_id, new.text),
        )
        long = [caption for caption in order if self.most_long and _num_words(caption) >= self.long]
        short = [caption for caption in order if caption not in long]
        small = [caption for caption in short if focus(_as_sample(caption)) < self.small]
        large = [caption for caption in short if caption not in small]
        kept = [*small[: self.most], *large[: max(self.broad - len(small), 0)]]
        kept += self._long(long)
        refused[MORE] += len(candidates) - len(kept)
        return kept

    def _long(self, candidates: Sequence[NewCaption]) -> list[NewCaption]:
        """Those nearest to lengths that are drawn."""
        remaining = [caption for caption in candidates if _num_words(caption) <= self.longest]
        kept: list[NewCaption] = []
        for number in range(min(self.most_long, len(remaining))):
            key = draw_key(self.seed, "long", remaining[0].sample.image_id, str(number))
            num_words = self.long + int(key, 16) % (self.longest - self.long + 1)
            kept.append(min(remaining, key=lambda caption: abs(_num_words(caption) - num_words)))
            remaining.remove(kept[-1])
        return kept

    @staticmethod
    def _plain(caption: str) -> str:
        return " ".join(caption.lower().replace(".", " ").split())


def _new_caption(sample: Sample, graph: Graph, caption: Caption) -> NewCaption:
    verbs = [node.names[0].word for node in graph.nodes.values() if node.is_predicate]
    return NewCaption(
        sample=sample,
        text=caption.text,
        phrases=phrases_of(caption, graph),
        verb=next(filter(None, verbs), ""),
        graph=write_penman(graph),
    )


def phrases_of(caption: Caption, graph: Graph) -> tuple[Phrase, ...]:
    """The grounded phrases of a caption, as a data set has them."""
    return tuple(
        Phrase(
            start=start,
            text=text,
            chain_id=min(node.chains, default="0"),
            kinds=tuple(sorted(node.kinds)),
            regions=tuple(sorted(node.regions)),
        )
        for start, text, variable in caption.mentions
        for node in (graph.nodes[variable],)
    )


def _num_words(caption: NewCaption) -> int:
    return len(caption.text.split())


def _as_sample(caption: NewCaption) -> Sample:
    return replace(caption.sample, caption=caption.text, phrases=caption.phrases)
