"""Events of a photo's graph, each with a part of what is said about it (section 4, step 2).

From each predicate outwards: its ARG0 to ARG2, then ARG3 to ARG5 too, then optional roles too; and
from there down to the leaves. A thing is called by one caption's name for it, drawn at random, with
the attributes and the number of that caption: so that no sample says more than somebody has said,
and "two girls" never become "two young women girls".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from augmentation.captions.ssa.graph import JOINTS, Edge, Graph, Name

FIRST_ARGUMENTS = ("ARG0", "ARG1", "ARG2")
LAST_ARGUMENTS = ("ARG3", "ARG4", "ARG5")
# Of a thing: what one name of it brings along, and what else may be said of it.
_OF_NAME = ("mod", "quant", "poss", "consist-of", "part-of", "topic", "degree", "polarity")
_OF_PLACE = ("op1",)
_NO_EVENTS = ("resemble-01",)
HELD = ("wear-01", "have-03")
MOST_PLACES = 2


class Sampler:
    """Draws samples of a graph.

    Args:
        graph: of all captions of a photo.
        rng: where draws come from.
        detail: probability that something optional is said of a thing.
    """

    def __init__(self, graph: Graph, rng: np.random.Generator, *, detail: float = 0.5) -> None:
        self.graph, self.rng, self.detail = graph, rng, detail

    def samples(self) -> Iterator[Graph]:
        """Three samples a predicate, from little to all that is said about it; repeats occur."""
        for variable, node in self.graph.nodes.items():
            if not node.is_predicate or node.concept in _NO_EVENTS:
                continue
            roles = {edge.role for edge in self.graph.out[variable]}
            aside = is_attribute(self.graph, variable) and not is_colour(node.concept)
            if aside or not roles & {"ARG0", "ARG1"}:
                continue  # "a parked car" is not "a car is parked" to whoever wrote it
            for arguments in (FIRST_ARGUMENTS, FIRST_ARGUMENTS + LAST_ARGUMENTS, None):
                yield self._sample(variable, arguments)

    def _sample(self, root: str, roles: tuple[str, ...] | None) -> Graph:
        draft = _Draft(self.graph, self.rng, self.detail if roles is None else self.detail / 2)
        draft.event(root, roles)
        return draft.graph(root)


class _Draft:
    """One sample that grows."""

    def __init__(self, graph: Graph, rng: np.random.Generator, detail: float) -> None:
        self.whole, self.rng, self.detail = graph, rng, detail
        self.names: dict[str, Name] = {}
        self.edges: list[Edge] = []

    def graph(self, root: str) -> Graph:
        """What was drawn; each node has one name."""
        nodes = {v: replace(self.whole.nodes[v], names=(name,)) for v, name in self.names.items()}
        kept = [e for e in self.edges if e.source in nodes and e.target in nodes]
        return Graph(nodes, tuple(dict.fromkeys(kept)), root)

    def maybe(self, chance: float) -> bool:
        """True with a probability."""
        return bool(self.rng.random() < chance)

    def name(self, variable: str, caption: int | None = None) -> Name:
        """One of a node's names: that of a caption if it has one, else any."""
        names = self.whole.nodes[variable].names
        own = [name for name in names if name.caption == caption]
        candidates = own or names
        return candidates[int(self.rng.integers(len(candidates)))]

    def event(self, variable: str, roles: tuple[str, ...] | None, caption: int = -1) -> None:
        """Add a predicate with arguments in some roles, None for all."""
        self.names[variable] = self.name(variable, caption if caption >= 0 else None)
        by_role: dict[str, list[Edge]] = {}
        for edge in self.whole.out[variable]:
            if roles is None or edge.role in roles or edge.role == "polarity":
                by_role.setdefault(edge.role, []).append(edge)
        places = 0
        for role, edges in by_role.items():
            optional = not role.startswith("ARG") and role != "polarity"
            if optional and (places == MOST_PLACES or not self.maybe(0.8)):
                continue
            edge = self._agreeing(edges, self.names[variable].caption)
            places += optional
            self.edges.append(edge)
            self.visit(edge.target, edge)

    def _agreeing(self, edges: list[Edge], caption: int) -> Edge:
        """One of several of a role: of the caption that the verb is of, where there is one."""
        own = [edge for edge in edges if caption in edge.captions] or edges
        return own[int(self.rng.integers(len(own)))]

    def visit(self, variable: str, edge: Edge) -> None:
        """Add what an edge leads to."""
        if variable in self.names:
            return
        node = self.whole.nodes[variable]
        caption = min(edge.captions)
        if node.is_predicate:
            self.event(variable, FIRST_ARGUMENTS, caption)
        elif node.concept in JOINTS:
            self.names[variable] = self.name(variable, caption)
            for part in self.whole.out[variable]:
                if part.role.startswith("op"):
                    self.edges.append(part)
                    self.visit(part.target, part)
        else:
            self.thing(variable)

    def thing(self, variable: str) -> None:
        """Add a thing, a place or an attribute, by one of its names."""
        name = self.names[variable] = self.name(variable)
        for edge in self.whole.out[variable]:
            mine = name.caption in edge.captions
            belongs = edge.role in (*_OF_NAME, *_OF_PLACE) and mine
            belongs |= edge.role in ("part", "location") and mine and self.maybe(self.detail)
            if edge.role == "op1" or belongs:
                self.edges.append(edge)
                self.visit(edge.target, edge)
        for edge in self.whole.into[variable]:
            self._described(variable, edge, name.caption)

    def _described(self, variable: str, edge: Edge, caption: int) -> None:
        """Add what says something of a thing: colours, owners, clothes, what it is doing."""
        node = self.whole.nodes[edge.source]
        mine = caption in edge.captions
        if edge.role == "part" and edge.source in self.names:
            self.edges.append(edge)
        elif not mine or edge.source in self.names or not node.is_predicate:
            return
        elif is_attribute(self.whole, edge.source) and edge.role in ("ARG0", "ARG1"):
            self.names[edge.source] = self.name(edge.source, caption)
            self.edges.append(edge)
        elif node.concept in HELD and edge.role == "ARG0" and self.maybe(self.detail):
            if any(name.concept == node.concept for name in self.names.values()):
                return  # what somebody wears is said once
            self.edges.append(edge)
            self.event(edge.source, FIRST_ARGUMENTS, caption)


def is_attribute(graph: Graph, variable: str) -> bool:
    """Whether a predicate is said as a word before a noun: a colour, or "parked"."""
    node = graph.nodes[variable]
    out = graph.out[variable]
    word = node.names[0].word
    is_named = not word or not node.concept.startswith(f"{word.replace(' ', '-')}-")
    return len(out) <= 1 and (is_colour(node.concept) or is_named) and node.is_predicate


def is_colour(concept: str) -> bool:
    """Whether a label is of a colour, as ``"red-02"``."""
    return concept[:-3] in COLOUR_WORDS


_COLOURS = "red white black blue green brown yellow purple gray tan"
COLOUR_WORDS = frozenset(_COLOURS.split())
