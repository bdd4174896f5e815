"""Write sentences for graphs, with the text positions at which nodes are mentioned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from augmentation.captions.new_captions import NewCaption
from augmentation.ssa.graph import Graph
from augmentation.ssa.penman import write_penman
from captioning.types import Phrase, Region, Sample


def new_caption_of(sample: Sample, graph: Graph, caption: Caption) -> NewCaption:
    """Build a caption for a sample's photo."""
    verbs = [node.names[0].word for node in graph.nodes.values() if node.is_predicate]
    return NewCaption(
        sample=sample,
        text=caption.text,
        phrases=phrases_of(caption, graph, sample.regions),
        verb=next(filter(None, verbs), ""),
        graph=write_penman(graph),
    )


def phrases_of(caption: Caption, graph: Graph, regions: Sequence[Region]) -> tuple[Phrase, ...]:
    """Grounded phrases of a caption, in the form of a dataset.

    A box may have several regions, as in COCO Entities, one for each class in captions; a phrase
    has the one whose label it names, else the first.
    """
    return tuple(
        Phrase(
            start=start,
            text=text,
            chain_id=min(node.chains, default="0"),
            kinds=tuple(sorted(node.kinds)),
            regions=tuple(sorted(_labelled(regions, n, node.names[0].word) for n in node.regions)),
        )
        for start, text, variable in caption.mentions
        for node in (graph.nodes[variable],)
    )


def _labelled(regions: Sequence[Region], number: int, word: str) -> int:
    """Region with the same box and the word as label, else the given region."""
    box = regions[number].box
    same = (n for n, region in enumerate(regions) if region.box == box and region.label == word)
    return next(same, number)


@dataclass(frozen=True, slots=True)
class Piece:
    """Words of a caption, with the node that they mention, if any."""

    text: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class Caption:
    """A caption with its mentions of nodes.

    Attributes:
        text: the caption.
        mentions: ``(start, text, node)``.
        nouns: lemmas of the nouns of a sentence that a model wrote; empty for the rules, which use
            only nouns of the photo's captions.
        unmatched_nouns: nouns of the caption without a node in the graph.
    """

    text: str
    mentions: tuple[tuple[int, str, str], ...]
    nouns: tuple[str, ...] = ()
    unmatched_nouns: tuple[str, ...] = ()


def caption_of(pieces: Iterable[Piece]) -> Caption:
    """Join pieces to a sentence with a capital letter and a full stop."""
    text, mentions = "", []
    for piece in pieces:
        if text and piece.text != ",":
            text += " "
        if piece.node:
            mentions.append((len(text), len(piece.text), piece.node))
        text += piece.text
    text = text[:1].upper() + text[1:] + "."
    named = ((start, text[start : start + n], node) for start, n, node in mentions)
    return Caption(text, tuple(named))
