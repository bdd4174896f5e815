"""Captions to AMR graphs by rule, from their dependency parses; needs no model but the tagger.

The graphs have the parts of AMR that captions need: predicates with senses and numbered arguments,
location, time, path, destination, direction, source, manner, purpose, modifiers, quantity,
possession, parts, coordination. docs/ssa.md shows how accurate it is, and what fails.
"""

from __future__ import annotations

from collections.abc import Sequence

from augmentation.ssa.builder import Builder
from augmentation.ssa.clauses import Clauses
from augmentation.ssa.graph import MULTI_SENTENCE, Graph
from augmentation.ssa.words import NOT, Words, parsed_words
from captioning.interfaces import AbstractParser
from captioning.types import Parse

# Words between a word and its root, at most, because reading and merging are recursive. A
# caption of 200 words that is all relative clauses has 100.
MAX_DEPTH = 150
NEGATIONS = NOT | {"no", "nor", "neither"}


class RuleParser:
    """Graphs of captions.

    Args:
        parser: gives words, tags and dependencies.
    """

    name = "rules"

    def __init__(self, *, parser: AbstractParser) -> None:
        self.parser = parser

    def parse(self, captions: Sequence[str]) -> list[Graph | None]:
        """A graph a caption, in order; None where `read_words` has none."""
        parses = self.parser.parse(captions)
        return [graph_of(caption, parse) for caption, parse in zip(captions, parses, strict=True)]


def graph_of(caption: str, parse: Parse) -> Graph | None:
    """The graph of a parsed caption, its nodes aligned with words by position.

    `Name.token` counts the words of `parsed_words`, in which hyphens join.

    Raises:
        ValueError: the parse is not of this caption.
    """
    return read_words(parsed_words(caption, parse))


def read_words(words: Words) -> Graph | None:
    """The graph of words; None where nothing in them can be a node, or they are nested too deep."""
    if _is_too_deep(words.tokens):
        return None
    builder = Builder(words)
    clauses = Clauses(builder)
    roots = [
        variable
        for i, token in enumerate(words.tokens)
        if token.head == i and (variable := clauses.top(i)) is not None
    ]
    if not roots:
        return None
    if len(roots) == 1:
        return builder.graph(roots[0])
    root = builder.add(MULTI_SENTENCE)
    for number, variable in enumerate(roots, start=1):
        builder.link(root, f"snt{number}", variable)
    return builder.graph(root)


def loses_negation(graph: Graph, words: Words) -> bool:
    """Whether words have more negations than their graph, so that it may say the opposite."""
    negations = sum(token.text.lower() in NEGATIONS for token in words.tokens)
    return sum(edge.role == "polarity" for edge in graph.edges) < negations


def _is_too_deep(tokens: Parse) -> bool:
    heads = range(len(tokens))
    for _ in range(MAX_DEPTH):
        heads = [tokens[head].head for head in heads]
    return any(tokens[head].head != head for head in heads)
