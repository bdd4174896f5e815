"""Boxes of a caption's phrases to the nodes of its graph (CIC-BART-SSA, section 4, step 1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from augmentation.ssa.dependency_parse import Words
from augmentation.ssa.filters import CrossFittedScores, GivenScores
from augmentation.ssa.graph import COORDINATORS, Graph
from augmentation.ssa.word_usage import Frames, NounForms
from captioning.data.roster import Roster
from captioning.types import Phrase, Region, Sample


@dataclass(kw_only=True)
class PhotoGraphs:
    """Graphs of a photo's captions, lemmas of their nouns, and the number that do not parse.

    Those that lack a "not" tell of words alone.
    """

    graphs: list[Graph] = field(default_factory=list)
    lacking_not: list[Graph] = field(default_factory=list)
    nouns: set[str] = field(default_factory=set)
    unreadable: int = 0


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """What all captions of a roster tell about each."""

    roster: Roster
    graphs: dict[str, PhotoGraphs]
    nouns: NounForms
    frames: Frames
    scores: CrossFittedScores | GivenScores


@dataclass(frozen=True, kw_only=True)
class PhotoInWork:
    """A photo, and what becomes of its captions.

    Attributes:
        sample: its first one.
        graphs: of its captions.
        own_captions: by people, normalised.
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
    """The graph whose nodes have the regions of the phrases that they head.

    A phrase grounds the node of its head; "men and women" that of "and". A phrase without a node
    grounds nothing, and a node without a phrase, or with one that has no box, stays without boxes.

    Args:
        graph: aligned with ``words``.
        words: of the caption with these phrases.
        phrases: with regions.
        regions: of the photo. Of several with the same box, as COCO Entities has one of each class
            that captions have for it, the first stands for all.
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
    """The node that a phrase describes."""
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
