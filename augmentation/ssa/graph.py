"""Graphs of meaning (AMR, Banarescu et al., 2013) whose nodes have words and boxes.

CIC-BART-SSA (Basioti et al., 2024, section 4) calls them vgAMR: a graph, the words of the caption
for its nodes, and the regions of the photo that these words describe.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

_SENSE = re.compile(r".-\d\d$")
# A number, a quoted text or a sign; "4-wheeler" is a word.
_LITERAL = re.compile(r'[+-]?\d[\d.,:/]*$|".*"$|[+-]$', re.DOTALL)
COORDINATORS = ("and", "or")
MULTI_SENTENCE = "multi-sentence"


@dataclass(frozen=True, slots=True)
class Name:
    """A word that one caption uses for a graph node.

    Attributes:
        concept: label of the node, such as ``"dog"``, ``"ride-01"`` or ``"2"``.
        word: dictionary form: ``"dog"``, ``"take off"``; empty if the caption has no word for it.
        plural: plural of a noun.
        article: before a noun: ``"a"``, ``"the"`` or ``""``.
        caption: number of the caption; synonyms of a node come from several captions.
        token: position of the word in the caption; -1 if there is none.
        noun: whether it names an object; compounds' first words and adjectives do not.
        form: form of a plural noun, as in the caption: "geese"; empty if unknown.
    """

    concept: str
    word: str = ""
    plural: bool = False
    article: str = ""
    caption: int = 0
    token: int = -1
    noun: bool = False
    form: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the graph, which stands for a concept.

    Attributes:
        names: its synonyms; the first is its label.
        regions: positions in ``Sample.regions`` of its boxes; empty without any.
        chains: ids of the chains of its phrases, with or without boxes.
        kinds: kinds of these phrases, such as ``"people"``.
    """

    names: tuple[Name, ...]
    regions: frozenset[int] = frozenset()
    chains: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()

    @property
    def concept(self) -> str:
        """Label of the node's concept."""
        return self.names[0].concept

    @property
    def is_literal(self) -> bool:
        """Whether the label is a number, text or sign, and not a named object such as "a 747"."""
        return bool(_LITERAL.match(self.concept)) and not self.names[0].noun

    @property
    def is_predicate(self) -> bool:
        """Whether the label has a sense, as in ``"ride-01"``."""
        return bool(_SENSE.search(self.concept))


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge from ``source`` to ``target`` with a role.

    Attributes:
        role: without colon and never inverse: ``"ARG0"``, ``"location"``.
        word: its preposition in the caption: AMR leaves out "in", "on" and "at".
        captions: numbers of the captions that have it.
    """

    source: str
    role: str
    target: str
    word: str = ""
    captions: frozenset[int] = frozenset((0,))


@dataclass(frozen=True)
class Graph:
    """Nodes by variable, in order, and edges in order.

    Raises:
        ValueError: an edge lacks its node, or the root is not a node.
    """

    nodes: Mapping[str, Node]
    edges: tuple[Edge, ...]
    root: str

    def __post_init__(self) -> None:
        ends = {self.root, *(e.source for e in self.edges), *(e.target for e in self.edges)}
        if not ends <= self.nodes.keys():
            raise ValueError(f"edges name missing nodes: {sorted(ends - self.nodes.keys())}")

    @cached_property
    def out(self) -> Mapping[str, tuple[Edge, ...]]:
        """Edges of the graph by source node."""
        return _grouped(self.nodes, ((edge.source, edge) for edge in self.edges))

    @cached_property
    def into(self) -> Mapping[str, tuple[Edge, ...]]:
        """Edges of the graph by target node."""
        return _grouped(self.nodes, ((edge.target, edge) for edge in self.edges))

    def is_constant(self, variable: str) -> bool:
        """Return whether AMR writes the node without a variable: a literal at the end of an edge.

        The root, and nodes with edges of their own, need a variable whatever their labels are.
        """
        is_leaf = not self.out[variable] and bool(self.into[variable])
        return is_leaf and variable != self.root and self.nodes[variable].is_literal

    def children(self, variable: str, *roles: str) -> list[str]:
        """Targets of a node's edges in the given roles."""
        return [edge.target for edge in self.out[variable] if edge.role in roles]

    def is_negated(self, variable: str) -> bool:
        """Return whether a node is negated by "not" or "no"."""
        return any(edge.role == "polarity" for edge in self.out[variable])

    def part(self, variables: Iterable[str], root: str) -> Graph:
        """Subgraph of some nodes and the edges between them."""
        variables = set(variables) | {root}
        return Graph(
            {variable: node for variable, node in self.nodes.items() if variable in variables},
            tuple(e for e in self.edges if e.source in variables and e.target in variables),
            root,
        )

    def reachable(self, start: str) -> set[str]:
        """Nodes that are connected to a node, in either direction, including the node itself."""
        reached, pending = {start}, [start]
        while pending:
            variable = pending.pop()
            neighbours = {e.target for e in self.out[variable]} | {
                e.source for e in self.into[variable]
            }
            pending += neighbours - reached
            reached |= neighbours
        return reached


def _grouped(
    nodes: Iterable[str], pairs: Iterable[tuple[str, Edge]]
) -> Mapping[str, tuple[Edge, ...]]:
    groups: dict[str, list[Edge]] = defaultdict(list)
    for variable, edge in pairs:
        groups[variable].append(edge)
    return {variable: tuple(groups.get(variable, ())) for variable in nodes}


def rename_variables(graph: Graph, prefix: str, caption: int) -> Graph:
    """Rename the variables of a graph to those of caption number ``caption``."""
    names = {variable: f"{prefix}{number}" for number, variable in enumerate(graph.nodes)}
    captions = frozenset((caption,))
    return Graph(
        {
            names[variable]: replace(
                node, names=tuple(replace(name, caption=caption) for name in node.names)
            )
            for variable, node in graph.nodes.items()
        },
        tuple(
            replace(e, source=names[e.source], target=names[e.target], captions=captions)
            for e in graph.edges
        ),
        names[graph.root],
    )
