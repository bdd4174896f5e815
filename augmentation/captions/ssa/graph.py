"""Graphs of meaning (AMR, Banarescu et al., 2013) whose nodes know their words and their boxes.

CIC-BART-SSA (Basioti et al., 2024, section 4) calls them vgAMR: a graph, the words of the caption
that its nodes stand for, and the regions of the photo that these speak of.
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
JOINTS = ("and", "or")
MULTI_SENTENCE = "multi-sentence"


@dataclass(frozen=True, slots=True)
class Name:
    """One caption's word for a node.

    Attributes:
        concept: label of the node, such as ``"dog"``, ``"ride-01"`` or ``"2"``.
        word: dictionary form as it is said: ``"dog"``, ``"take off"``; empty if it is not said.
        plural: of a noun.
        article: before a noun: ``"a"``, ``"the"`` or ``""``.
        caption: number of the caption; synonyms of one node are of several.
        token: position of the word in the caption; -1 if there is none.
        noun: whether it names a thing; compounds' first words and adjectives do not.
        form: of a noun in the plural, as the caption has it: "geese"; empty if unknown.
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
    """A concept.

    Attributes:
        names: its synonyms, the first is its label.
        regions: positions in ``Sample.regions`` of what it stands for; empty if it has no box.
        chains: ids of the phrases' chains that it was grounded by, boxes or not.
        kinds: of these phrases, such as ``"people"``.
    """

    names: tuple[Name, ...]
    regions: frozenset[int] = frozenset()
    chains: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()

    @property
    def concept(self) -> str:
        """The label."""
        return self.names[0].concept

    @property
    def is_literal(self) -> bool:
        """Whether its label is a number, a text or a sign and names no thing, as "a 747" does."""
        return bool(_LITERAL.match(self.concept)) and not self.names[0].noun

    @property
    def is_predicate(self) -> bool:
        """Whether its label bears a sense, as in ``"ride-01"``."""
        return bool(_SENSE.search(self.concept))


@dataclass(frozen=True, slots=True)
class Edge:
    """``source`` has ``target`` in a role.

    Attributes:
        role: without colon and never inverse: ``"ARG0"``, ``"location"``.
        word: preposition that it is said with: AMR leaves out "in", "on" and "at".
        captions: numbers of the captions that say it.
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
        ValueError: an edge from or to nowhere, or a root that is no node.
    """

    nodes: Mapping[str, Node]
    edges: tuple[Edge, ...]
    root: str

    def __post_init__(self) -> None:
        ends = {self.root, *(e.source for e in self.edges), *(e.target for e in self.edges)}
        if not ends <= self.nodes.keys():
            raise ValueError(f"no nodes of these names: {sorted(ends - self.nodes.keys())}")

    @cached_property
    def out(self) -> Mapping[str, tuple[Edge, ...]]:
        """Edges by source."""
        return _grouped(self.nodes, ((edge.source, edge) for edge in self.edges))

    @cached_property
    def into(self) -> Mapping[str, tuple[Edge, ...]]:
        """Edges by target."""
        return _grouped(self.nodes, ((edge.target, edge) for edge in self.edges))

    def is_constant(self, variable: str) -> bool:
        """Whether AMR writes a node without a variable: a literal that an edge leads to.

        The root, and what has edges of its own, need a variable whatever their labels are.
        """
        bare = not self.out[variable] and bool(self.into[variable])
        return bare and variable != self.root and self.nodes[variable].is_literal

    def children(self, variable: str, *roles: str) -> list[str]:
        """Targets of a node's edges in some roles."""
        return [edge.target for edge in self.out[variable] if edge.role in roles]

    def part(self, kept: Iterable[str], root: str) -> Graph:
        """The graph of some nodes and the edges between them."""
        variables = set(kept) | {root}
        return Graph(
            {variable: node for variable, node in self.nodes.items() if variable in variables},
            tuple(e for e in self.edges if e.source in variables and e.target in variables),
            root,
        )

    def reachable(self, start: str) -> set[str]:
        """Nodes joined to one by edges in either direction, itself among them."""
        reached, open_nodes = {start}, [start]
        while open_nodes:
            variable = open_nodes.pop()
            near = {e.target for e in self.out[variable]} | {e.source for e in self.into[variable]}
            open_nodes += near - reached
            reached |= near
        return reached


def _grouped(
    nodes: Iterable[str], pairs: Iterable[tuple[str, Edge]]
) -> Mapping[str, tuple[Edge, ...]]:
    groups: dict[str, list[Edge]] = defaultdict(list)
    for variable, edge in pairs:
        groups[variable].append(edge)
    return {variable: tuple(groups.get(variable, ())) for variable in nodes}


def renamed(graph: Graph, prefix: str, caption: int) -> Graph:
    """The graph with other variables, as said by caption number ``caption``."""
    names = {variable: f"{prefix}{number}" for number, variable in enumerate(graph.nodes)}
    only = frozenset((caption,))
    return Graph(
        {
            names[variable]: replace(
                node, names=tuple(replace(name, caption=caption) for name in node.names)
            )
            for variable, node in graph.nodes.items()
        },
        tuple(
            replace(e, source=names[e.source], target=names[e.target], captions=only)
            for e in graph.edges
        ),
        names[graph.root],
    )
