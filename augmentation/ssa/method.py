"""Structured semantic augmentation: make new captions about parts of photos (section 4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Literal

import numpy as np
from torch import Tensor

from augmentation.captions.new_captions import AbstractCaptionMethod, NewCaption, PhotoCaptions
from augmentation.regions.proposal import draw_key
from augmentation.ssa.amr_models import (
    AbstractGraphParser,
    AbstractGraphWriter,
    align,
    caption_by_words,
)
from augmentation.ssa.amr_parser import loses_negation, read_words
from augmentation.ssa.dependency_parse import Words, parsed_words
from augmentation.ssa.event_sampling import POSSESSION_CONCEPTS, LeafSampler, Sampler, is_attribute
from augmentation.ssa.filters import (
    DUPLICATE,
    ILL_FORMED,
    NOT_REALISED,
    CrossFittedScores,
    GivenScores,
    Rules,
)
from augmentation.ssa.graph import COORDINATORS, Edge, Graph, Name, Node
from augmentation.ssa.merging import Merging, word_of
from augmentation.ssa.realiser import LIST_STYLES, STYLES, Realiser
from augmentation.ssa.word_usage import Frames, NounForms
from augmentation.ssa.written_captions import Caption, caption_of, new_caption_of
from captioning.config.ranges import Cosine, Fraction, NonNegativeInt, PositiveInt, Seed
from captioning.data.roster import Roster
from captioning.data.steps.added_captions import focus
from captioning.interfaces import AbstractLanguageModel, AbstractParser, AbstractWordVectors
from captioning.metrics.well_formedness import AbstractWellFormedness
from captioning.text.entities import as_sentence
from captioning.text.phrases import NOUNS
from captioning.types import Phrase, Region, Sample

# Long captions: several events in one sentence.
#
# A single event gives no long caption, so a captioner that must write 25 words has seen hardly any.
# Samples that are good captions by themselves are joined: events of one subject ("a dog runs and
# catches a ball") or of two that share nothing ("while a boy watches").
MAX_EVENTS, MAX_SUBJECTS = 4, 2
_ROOT = "all"


def join_events(
    graphs: Sequence[Graph], rng: np.random.Generator, *, tries: int
) -> Iterator[Graph]:
    """Join two to four samples of a photo, preferably large ones; results may repeat.

    Args:
        graphs: samples of one merged graph, whose variables they have.
        rng: generator of the draws.
        tries: orders in which samples are joined.
    """
    events = [graph for graph in graphs if subject_of(graph)]
    sizes = np.array([len(graph.nodes) for graph in events])
    for _ in range(tries):
        parts: list[Graph] = []
        for place in np.argsort(-sizes * rng.random(len(events))):
            addition = _addition(parts, events[place])
            if addition is None:
                continue
            parts.append(addition)
            if len(parts) > 1:
                yield _coordinate(parts)
            if len(parts) == MAX_EVENTS:
                break


def subject_of(graph: Graph) -> str:
    """Subject of a sample's event; empty if the event cannot be joined to other events."""
    node = graph.nodes[graph.root]
    if (
        not node.is_predicate
        or node.concept in POSSESSION_CONCEPTS
        or is_attribute(graph, graph.root)
    ):
        return ""
    arguments = {edge.role: edge.target for edge in graph.out[graph.root]}
    subject = arguments.get("ARG0") or arguments.get("ARG1") or ""
    return "" if subject and graph.is_negated(subject) else subject  # "no dog runs" stands alone


def _addition(parts: Sequence[Graph], graph: Graph) -> Graph | None:
    """New nodes that a sample adds; None if it shares more than a subject with the parts."""
    subject, subjects = subject_of(graph), {subject_of(other) for other in parts}
    if len(subjects | {subject}) > MAX_SUBJECTS:
        return None
    shared = {subject} & subjects  # is described already, by one of its names
    if shared:
        remainder = graph.part(graph.nodes.keys() - shared, graph.root)
        graph = graph.part(remainder.reachable(graph.root) | shared, graph.root)
    new = [node for variable, node in graph.nodes.items() if variable not in shared]
    old = [node for other in parts for node in other.nodes.values()]
    variables = {variable for other in parts for variable in other.nodes}
    return None if variables & graph.nodes.keys() - shared or _overlap(old, new) else graph


def _overlap(old: Sequence[Node], new: Sequence[Node]) -> bool:
    """Return whether some nodes may be equal: they share a verb, a noun or a box."""
    labels = {node.concept for node in old if _is_content(node)}
    regions = frozenset[int]().union(*(node.regions for node in old))
    return any(
        node.regions & regions or (_is_content(node) and node.concept in labels) for node in new
    )


def _is_content(node: Node) -> bool:
    return node.is_predicate or node.names[0].noun


def _coordinate(graphs: Sequence[Graph]) -> Graph:
    """Join samples under an "and" root, with samples of one subject next to each other."""
    subjects = [subject_of(graph) for graph in graphs]
    order = sorted(graphs, key=lambda graph: subjects.index(subject_of(graph)))
    nodes = {_ROOT: Node((Name(concept="and"),))}
    for graph in order:
        nodes |= {variable: node for variable, node in graph.nodes.items() if variable not in nodes}
    parts = [Edge(_ROOT, f"op{n}", graph.root) for n, graph in enumerate(order, start=1)]
    return Graph(nodes, (*parts, *(edge for graph in order for edge in graph.edges)), _ROOT)


PARSED_AT_ONCE = 4096
PHOTOS_AT_ONCE = 64  # of which networks write and judge sentences
NUM_ORDERS = 8  # in which events are joined, for each long caption
SAMPLINGS = ("details", "leaves")
TOO_MANY = "more than wanted of a photo"
UNREADABLE = "caption without a graph"


class Ssa(AbstractCaptionMethod):
    """Generates captions for the photos of a roster.

    Args:
        parser: parser of captions: words, tags and dependencies.
        vectors: vectors of words, to find synonyms.
        rules: rules for accepting captions.
        max_small: captions of small parts a photo, drawn at random.
        rounds: times that all events of a photo are sampled.
        sampling: ``"details"``: `Sampler`; ``"leaves"``: `LeafSampler`, as in the authors' code.
        detail_probability: probability of each optional detail about an object; of ``"details"``
            alone.
        small_coverage: a caption of lower coverage, in [0, 1], describes a small part of its photo.
        min_captions: captions of larger parts are added up to this number for each photo.
        min_long_words: words of a long caption, at least.
        max_long: long captions per photo, of several events (`join_events`; by the rules alone).
            Their lengths are drawn evenly from `min_long_words` to `max_long_words`, and the
            nearest captions are taken.
        max_long_words: words of a long caption, at most.
        min_similarity, min_similarity_same_arguments: see `Merging`.
        language_model: judges well-formedness; None for trigrams of the roster's captions.
        gruen: judges it instead, as in the paper, such as a `captioning.metrics.gruen.Gruen`.
        graph_parser: makes the captions' graphs; None for the rules of `read_words`.
        graph_writer: writes the samples as sentences; None for the rules of `Realiser`.
        keeps_repeats: keep a sentence that an earlier photo of the set has, too.
        seed: seed of all draws.

    Raises:
        ValueError: a setting is out of range, or ``max_long`` is set with ``graph_writer``.
    """

    description = "captions of parts of photos by structured semantic augmentation"

    def __init__(
        self,
        *,
        parser: AbstractParser,
        vectors: AbstractWordVectors,
        rules: Rules,
        max_small: NonNegativeInt = 8,
        rounds: PositiveInt = 3,
        sampling: Literal["details", "leaves"] = "details",
        detail_probability: Fraction = 0.5,
        small_coverage: Fraction = 0.3,
        min_captions: NonNegativeInt = 2,
        min_long_words: PositiveInt = 14,
        max_long: NonNegativeInt = 0,
        max_long_words: PositiveInt = 30,
        min_similarity: Cosine = 0.7,
        min_similarity_same_arguments: Cosine = 0.5,
        language_model: AbstractLanguageModel | None = None,
        gruen: AbstractWellFormedness | None = None,
        graph_parser: AbstractGraphParser | None = None,
        graph_writer: AbstractGraphWriter | None = None,
        keeps_repeats: bool = True,
        seed: Seed = 0,
    ) -> None:
        shares = (detail_probability, small_coverage)
        if min(max_small, rounds) < 1 or min_captions < 0 or not all(0 <= s <= 1 for s in shares):
            raise ValueError(
                "method.max_small and method.rounds must be at least 1, method.min_captions at "
                "least 0, method.detail_probability and method.small_coverage in [0, 1]: "
                f"got {max_small}, {rounds}, {min_captions}, {shares[0]} and {shares[1]}"
            )
        if sampling not in SAMPLINGS:
            raise ValueError(f"method.sampling must be one of {SAMPLINGS}: got {sampling!r}")
        _check_long(max_long, (min_long_words, max_long_words), graph_writer)
        self.parser, self.rules, self.rounds = parser, rules, rounds
        self.sampling, self.detail_probability = sampling, detail_probability
        self.keeps_repeats, self.seed, self.max_long = keeps_repeats, seed, max_long
        self.language_model, self.gruen = language_model, gruen
        self.graph_parser, self.graph_writer = graph_parser, graph_writer
        models = language_model, gruen, graph_parser, graph_writer
        self.uses_gpu = any(model is not None for model in models)
        # A network takes hardly longer for the sentences of many photos than of one.
        asked = language_model, gruen, graph_writer
        if any(model is not None for model in asked):
            self.photos_at_once = PHOTOS_AT_ONCE
        self.selection = Selection(
            max_small=max_small,
            small_coverage=small_coverage,
            min_captions=min_captions,
            max_long=max_long,
            min_long_words=min_long_words,
            max_long_words=max_long_words,
            seed=seed,
        )
        self._data: Knowledge | None = None
        self._similarity = WordSimilarity(vectors)
        self.merging = Merging(
            similarity=self._similarity,
            min_similarity=min_similarity,
            min_similarity_same_arguments=min_similarity_same_arguments,
        )

    def captions(self, roster: Roster, *, skip: int = 0) -> Iterator[PhotoCaptions]:
        """See `AbstractCaptionMethod`.

        Raises:
            ValueError: no phrase of the roster has a box.
        """
        if not any(phrase.regions for sample in roster.samples for phrase in sample.phrases):
            raise ValueError(
                f"{roster.name}: no caption phrase has a box: method=ssa needs captions with "
                "boxes, such as data=flickr8k_entities or data=miniworld"
            )
        data = self._data
        if data is None or data.roster is not roster:
            data = self._data = self._knowledge(roster)
        first = skip - skip % self.photos_at_once  # every run has the same blocks of photos
        photos = self._photos(data, first)
        blocks = iter(lambda: list(islice(photos, self.photos_at_once)), [])
        made = (captions for block in blocks for captions in self._of_block(block, data))
        yield from islice(made, skip - first, None)

    def _photos(self, data: Knowledge, start: int) -> Iterator[PhotoInWork]:
        samples = data.roster.samples
        for image_id, rows in islice(data.roster.rows_by_image.items(), start, None):
            graphs = data.graphs[image_id]
            yield PhotoInWork(
                sample=samples[rows[0]],
                graphs=graphs,
                own_captions={self._normalise(samples[row].caption) for row in rows},
                refused=Counter({UNREADABLE: graphs.unreadable}),
            )

    def _of_block(self, photos: Sequence[PhotoInWork], data: Knowledge) -> Iterator[PhotoCaptions]:
        """Captions of a block of photos, for which networks write and judge sentences together."""
        candidates = self._candidates(photos, data)
        well_formed = self._well_formed(photos, candidates, data.scores)
        for photo, captions in zip(photos, well_formed, strict=True):
            selected = self.selection.select(captions)
            photo.refused[TOO_MANY] += len(captions) - len(selected)
            yield PhotoCaptions(captions=selected, refused=+photo.refused)

    def _knowledge(self, roster: Roster) -> Knowledge:
        """Statistics that are read from all captions before the first photo."""
        graphs_by_image = self._read(roster)
        all_graphs = [
            graph
            for photo_graphs in graphs_by_image.values()
            for graph in (*photo_graphs.graphs, *photo_graphs.lacking_not)
        ]
        nodes = chain.from_iterable(graph.nodes.values() for graph in all_graphs)
        words = {word_of(name) for node in nodes for name in node.names}
        self._similarity.read(words.union(*(photo.nouns for photo in graphs_by_image.values())))
        return Knowledge(
            roster=roster,
            graphs=graphs_by_image,
            nouns=NounForms(all_graphs),
            frames=Frames(all_graphs),
            scores=self._scores(roster),
        )

    def _scores(self, roster: Roster) -> CrossFittedScores | GivenScores:
        if self.gruen is not None:
            return GivenScores(self.gruen)
        return CrossFittedScores(roster, language_model=self.language_model, seed=self.seed)

    def _read(self, roster: Roster) -> dict[str, PhotoGraphs]:
        """Grounded graphs of the captions, and the captions' nouns, by image."""
        by_image = {image_id: PhotoGraphs() for image_id in roster.rows_by_image}
        for start in range(0, len(roster), PARSED_AT_ONCE):
            samples = roster.samples[start : start + PARSED_AT_ONCE]
            captions = [sample.caption for sample in samples]
            caption_graphs = [None] * len(samples)
            if self.graph_parser is not None:
                caption_graphs = self.graph_parser.graphs(captions)
            for sample, parse, graph_of_caption in zip(
                samples, self.parser.parse(captions), caption_graphs, strict=True
            ):
                words, photo_graphs = parsed_words(sample.caption, parse), by_image[sample.image_id]
                photo_graphs.nouns.update(
                    token.lemma for token in words.tokens if token.pos in NOUNS
                )
                if self.graph_parser is None:
                    graph = read_words(words)
                else:
                    graph = graph_of_caption and align(graph_of_caption, words)
                if graph is None:
                    photo_graphs.unreadable += 1
                elif self.graph_parser is None and loses_negation(graph, words):
                    photo_graphs.lacking_not.append(graph)
                    photo_graphs.unreadable += 1
                else:
                    graph = ground(graph, words, sample.phrases, sample.regions)
                    photo_graphs.graphs.append(graph)
        return by_image

    def _candidates(self, photos: Sequence[PhotoInWork], data: Knowledge) -> list[list[NewCaption]]:
        """Candidates of each photo that pass all filters except well-formedness."""
        if self.graph_writer is None:
            return [self._by_rules(photo, data) for photo in photos]
        graphs = [list(self._samples(photo, self._rng(photo))) for photo in photos]
        said = self._realise_by_model(self.graph_writer, list(chain.from_iterable(graphs)))
        return [
            self._accepted(photo, islice(said, len(own)), data, [])
            for photo, own in zip(photos, graphs, strict=True)
        ]

    def _by_rules(self, photo: PhotoInWork, data: Knowledge) -> list[NewCaption]:
        """Candidates of a photo by the rules; joined events combine accepted candidates only."""
        if not photo.graphs.graphs:
            return []
        rng = self._rng(photo)
        accepted: list[Graph] = []
        graphs = self._samples(photo, rng)
        if self.max_long:
            joined = join_events(accepted, rng, tries=self.max_long * NUM_ORDERS)
            graphs = chain(graphs, joined)
        return self._accepted(photo, self._realise(graphs, data.nouns, rng), data, accepted)

    def _rng(self, photo: PhotoInWork) -> np.random.Generator:
        return np.random.default_rng(int(draw_key(self.seed, "ssa", photo.sample.image_id), 16))

    def _samples(self, photo: PhotoInWork, rng: np.random.Generator) -> Iterator[Graph]:
        """Sampled subgraphs of a photo's graph."""
        if photo.graphs.graphs:
            merged = self.merging.merge_all(photo.graphs.graphs)
            for sampler in self._samplers(merged, rng):
                yield from sampler.samples()

    def _accepted(
        self,
        photo: PhotoInWork,
        said: Iterable[tuple[Graph, Caption | None]],
        data: Knowledge,
        graphs: list[Graph],
    ) -> list[NewCaption]:
        """Yield captions that pass the rules; their graphs are added to ``graphs``."""
        captions: dict[str, NewCaption] = {}
        for graph, caption in said:
            if caption is None:
                photo.refused[NOT_REALISED] += 1
                continue
            new_caption = new_caption_of(photo.sample, graph, caption)
            problem = self.rules.problem(
                graph,
                caption,
                data.frames,
                known_nouns=photo.graphs.nouns,
                similarity=self.merging.similarity,
            )
            text = self._normalise(new_caption.text)
            if not problem and text in {*captions, *photo.own_captions}:
                problem = DUPLICATE
            if problem:
                photo.refused[problem] += 1
            else:
                captions[text] = new_caption
                graphs.append(graph)
        return list(captions.values())

    def _samplers(self, merged: Graph, rng: np.random.Generator) -> Iterator[Sampler | LeafSampler]:
        details = [self.detail_probability] * self.rounds
        details += [1.0] * self.rounds if self.max_long else []  # long captions need all details
        for detail in details:
            leaves = self.sampling == "leaves"
            yield LeafSampler(merged, rng) if leaves else Sampler(merged, rng, detail=detail)

    def _realise(
        self, graphs: Iterable[Graph], nouns: NounForms, rng: np.random.Generator
    ) -> Iterator[tuple[Graph, Caption | None]]:
        """Write each graph as a sentence with the rules; None if no sentence is possible."""
        for graph in graphs:
            is_list = not graph.nodes[graph.root].is_predicate
            styles = LIST_STYLES if is_list else STYLES
            style = styles[int(rng.integers(len(styles)))]
            try:
                caption = caption_of(Realiser(graph=graph, style=style, nouns=nouns).pieces())
            except ValueError:
                caption = None
            yield graph, caption

    def _realise_by_model(
        self, writer: AbstractGraphWriter, graphs: Sequence[Graph]
    ) -> Iterator[tuple[Graph, Caption | None]]:
        """Write each graph with a model; its sentence must mention all objects of the graph."""
        matching = {
            "similarity": self.merging.similarity,
            "min_similarity": self.rules.min_noun_similarity,
        }
        style = str.lower if writer.lower_case else as_sentence
        answers = [" ".join(text.split()) for text in writer.sentences(graphs)]
        texts = [style(text) if any(map(str.isalpha, text)) else "" for text in answers]
        parses = self.parser.parse([text for text in texts if text])
        self._similarity.read(t.lemma for parse in parses for t in parse if t.pos in NOUNS)
        parses = iter(parses)
        for graph, text in zip(graphs, texts, strict=True):
            caption = None
            if text:
                try:
                    words = parsed_words(text, next(parses))
                    caption = caption_by_words(graph, text, words, **matching)
                except ValueError:
                    caption = None
            yield graph, caption

    def _well_formed(
        self,
        photos: Sequence[PhotoInWork],
        candidates: Sequence[Sequence[NewCaption]],
        scores: CrossFittedScores | GivenScores,
    ) -> Iterator[list[NewCaption]]:
        """Candidates of each photo with a sufficient well-formedness score."""
        image_ids = [own[0].sample.image_id for own in candidates for _ in own]
        texts = [caption.text for own in candidates for caption in own]
        values = iter(scores.score(image_ids, texts) if texts else ())
        for photo, own in zip(photos, candidates, strict=True):
            well_formed = [
                replace(caption, score=round(value, 4))
                for caption, value in zip(own, islice(values, len(own)), strict=True)
                if value >= self.rules.min_well_formedness
            ]
            photo.refused[ILL_FORMED] += len(own) - len(well_formed)
            yield well_formed

    @staticmethod
    def _normalise(caption: str) -> str:
        return " ".join(caption.lower().replace(".", " ").split())


def _check_long(
    max_long: int, words: tuple[int, int], graph_writer: AbstractGraphWriter | None
) -> None:
    """Raise ValueError for inconsistent settings of long captions."""
    if max_long < 0 or not 1 <= words[0] <= words[1]:
        raise ValueError(
            "method.max_long must be at least 0, and method.min_long_words must be from 1 to "
            f"method.max_long_words: got {max_long}, {words[0]} and {words[1]}"
        )
    if max_long and graph_writer is not None:  # it writes before any caption is accepted
        raise ValueError(
            f"method.max_long={max_long} joins captions written by rules, but method.graph_writer "
            "writes captions with a model: set method.max_long=0 or method.graph_writer=null"
        )


@dataclass(kw_only=True)
class PhotoGraphs:
    """Graphs of a photo's captions, noun lemmas, and the number of captions that failed to parse.

    Captions that lack a "not" differ in words alone.
    """

    graphs: list[Graph] = field(default_factory=list)
    lacking_not: list[Graph] = field(default_factory=list)
    nouns: set[str] = field(default_factory=set)
    unreadable: int = 0


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """Statistics over all captions of a roster."""

    roster: Roster
    graphs: dict[str, PhotoGraphs]
    nouns: NounForms
    frames: Frames
    scores: CrossFittedScores | GivenScores


@dataclass(frozen=True, kw_only=True)
class PhotoInWork:
    """A photo in progress, with the counts of its captions.

    Attributes:
        sample: its first one.
        graphs: graphs of its captions.
        own_captions: human captions, normalised.
        refused: numbers of new captions by reason.
    """

    sample: Sample
    graphs: PhotoGraphs
    own_captions: set[str]
    refused: Counter[str]


# Chain ids of no object: what cannot be seen in Flickr30k Entities, and what was not detected in
# COCO Entities.
NO_CHAINS = frozenset(("0", "_"))


def ground(
    graph: Graph, words: Words, phrases: Iterable[Phrase], regions: Sequence[Region]
) -> Graph:
    """Give graph nodes the regions of the phrases whose heads they are.

    A phrase grounds the node of its head; "men and women" grounds the node "and". A phrase without
    a node grounds nothing, and a node without a phrase, or with one that has no box, stays without
    boxes.

    Args:
        graph: aligned with ``words``.
        words: words of the caption with these phrases.
        phrases: phrases with regions.
        regions: the photo's regions. Of several with the same box, as COCO Entities has one of each
            class that captions have for it, the first stands for all.
    """
    first_of: dict[tuple[float, ...], int] = {}
    for position, region in enumerate(regions):
        first_of.setdefault(region.box, position)
    variable_of_token = {
        node.names[0].token: v for v, node in graph.nodes.items() if node.names[0].token >= 0
    }
    nodes = dict(graph.nodes)
    for phrase in phrases:
        end = phrase.start + len(phrase.text)
        inside = [
            i for i, span in enumerate(words.spans) if span[0] >= phrase.start and span[1] <= end
        ]
        variable = _node(graph, words, inside, variable_of_token)
        if variable is not None:
            chain = {phrase.chain_id} - NO_CHAINS
            node = nodes[variable]
            nodes[variable] = replace(
                node,
                regions=node.regions | {first_of[regions[n].box] for n in phrase.regions},
                chains=node.chains | chain,
                kinds=node.kinds | set(phrase.kinds),
            )
    return Graph(nodes, graph.edges, graph.root)


def _node(
    graph: Graph, words: Words, inside: list[int], variable_of_token: dict[int, str]
) -> str | None:
    """Graph node that a caption phrase describes."""
    head_of = {i: words.tokens[i].head for i in inside if i in variable_of_token}
    heads = [
        i for i, head in head_of.items() if head == i or head not in inside
    ]  # a root is its own
    nouns = [
        i
        for i in inside
        if i in variable_of_token and graph.nodes[variable_of_token[i]].names[0].noun
    ]
    nouns_at_top = [i for i in heads if i in nouns]
    if not nouns and not heads:
        return None
    head = (nouns_at_top or nouns[-1:] or heads)[-1]
    tokens = set(inside)
    for edge in graph.into[variable_of_token[head]]:
        if graph.nodes[edge.source].concept in COORDINATORS:
            parts = [graph.nodes[e.target].names[0].token for e in graph.out[edge.source]]
            if set(parts) <= tokens:
                return edge.source
    return variable_of_token[head]


class WordSimilarity:
    """Cosine similarity of the vectors of two words or short terms; 1 for equal terms.

    Args:
        vectors: vectors of words; a term has the sum of its words' vectors.
    """

    def __init__(self, vectors: AbstractWordVectors) -> None:
        self._vectors = vectors
        self._rows: dict[str, Tensor] = {}
        self._similarities: dict[tuple[str, str], float] = {}

    def read(self, terms: Iterable[str]) -> None:
        """Look up the words of many terms at once, so that a file of vectors is read once."""
        words = {word for term in terms for word in _words_of(term)}
        if words:
            self._vectors.vectors(sorted(words))

    def __call__(self, first: str, second: str) -> float:
        """Similarity in [-1, 1]; 0 for words without a vector."""
        if first == second:
            return 1.0
        key = (first, second) if first < second else (second, first)
        if key not in self._similarities:
            self._similarities[key] = float(self._row(first) @ self._row(second))
        return self._similarities[key]

    def _row(self, term: str) -> Tensor:
        if term not in self._rows:
            total = self._vectors.vectors(_words_of(term)).sum(0)
            self._rows[term] = total / total.norm().clamp_min(1e-9)
        return self._rows[term]


def _words_of(term: str) -> list[str]:
    return term.replace("-", " ").split() or [term]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Selects captions of small parts, captions of larger parts, and long captions.

    Attributes:
        max_small: captions of small parts a photo, drawn at random.
        small_coverage: a caption of lower coverage, in [0, 1], describes a small part of its photo.
        min_captions: captions of larger parts are added up to this number for each photo.
        max_long: long captions per photo. Their lengths are drawn evenly from ``min_long_words`` to
            ``max_long_words``, and the nearest captions are taken.
        min_long_words, max_long_words: words of a long caption.
        seed: seed of the draws.
    """

    max_small: int
    small_coverage: float
    min_captions: int
    max_long: int
    min_long_words: int
    max_long_words: int
    seed: int

    def select(self, candidates: Sequence[NewCaption]) -> list[NewCaption]:
        """Select the captions of one photo to keep."""
        order = sorted(
            candidates,
            key=lambda new: draw_key(self.seed, "drawn", new.sample.image_id, new.text),
        )
        long = [
            caption
            for caption in order
            if self.max_long and _num_words(caption) >= self.min_long_words
        ]
        short = [caption for caption in order if caption not in long]
        small = [caption for caption in short if _coverage(caption) < self.small_coverage]
        large = [caption for caption in short if caption not in small]
        kept = small[: self.max_small]
        return [
            *kept,
            *large[: max(self.min_captions - len(kept), 0)],
            *self._select_long(long),
        ]

    def _select_long(self, candidates: Sequence[NewCaption]) -> list[NewCaption]:
        """Select the captions whose lengths are closest to randomly drawn lengths."""
        remaining = [
            caption for caption in candidates if _num_words(caption) <= self.max_long_words
        ]
        selected: list[NewCaption] = []
        for number in range(min(self.max_long, len(remaining))):
            key = draw_key(self.seed, "long", remaining[0].sample.image_id, str(number))
            num_words = self.min_long_words + int(key, 16) % (
                self.max_long_words - self.min_long_words + 1
            )
            selected.append(
                min(remaining, key=lambda caption: abs(_num_words(caption) - num_words))
            )
            remaining.remove(selected[-1])
        return selected


def _num_words(caption: NewCaption) -> int:
    return len(caption.text.split())


def _coverage(caption: NewCaption) -> float:
    return focus(replace(caption.sample, caption=caption.text, phrases=caption.phrases))
