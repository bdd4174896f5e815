"""Sample events and some of their details from a photo's graph (section 4, step 2).

Starting from each predicate: its ARG0 to ARG2, then ARG3 to ARG5 too, then optional roles too; and
from there down to the leaves. An object has the name of one caption, drawn at random, with the
attributes and the number of that caption. So no sample claims more than some caption does, and "two
girls" never become "two young women girls".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from augmentation.ssa.graph import COORDINATORS, Edge, Graph, Name

MIN_NODES = 3
POLARITY = "polarity"  # theirs leaves "not" out of the samples of arguments
LISTS = ("include-91",)


class LeafSampler:
    """Draws samples of every predicate with arguments.

    One sample has its ARG0 to ARG2 with their numbers. Each of ARG3, ARG4 and ARG5 that it has
    gives one more, which has the former's arguments, too. The last one has all that edges lead to
    from there, in any role, down to the leaves. One of a node's edges in a role is drawn, and one
    of a node's synonyms. Samples of fewer than three nodes are left out.

    Args:
        graph: graph of all captions of a photo.
        rng: generator of the draws.
    """

    def __init__(self, graph: Graph, rng: np.random.Generator) -> None:
        self.graph, self.rng = graph, rng

    def samples(self) -> Iterator[Graph]:
        """Yield samples with few to all of a predicate's arguments; samples may repeat."""
        for variable, node in self.graph.nodes.items():
            roles = {edge.role for edge in self.graph.out[variable]}
            arguments = roles & {*FIRST_ARGUMENTS, *LAST_ARGUMENTS}
            if not node.is_predicate or not arguments or node.concept in LISTS:
                continue
            yield from self._drawn(variable, self._event(variable, FIRST_ARGUMENTS))
            for number, role in enumerate(LAST_ARGUMENTS, start=1):
                if role in arguments:
                    followed = FIRST_ARGUMENTS + LAST_ARGUMENTS[:number]
                    yield from self._drawn(variable, self._event(variable, followed))
            yield from self._drawn(variable, self._to_the_leaves(variable))

    def _event(self, root: str, roles: Collection[str]) -> list[Edge]:
        """A predicate with its arguments, the members of lists among them, and numbers."""
        followed = [edge for edge in self.graph.out[root] if edge.role in (*roles, POLARITY)]
        edges = self._one_of_each(followed)
        reached = list(dict.fromkeys(edge.target for edge in edges))
        for variable in reached:  # grows by the parts of lists
            if self.graph.nodes[variable].concept in COORDINATORS:
                parts = [e for e in self.graph.out[variable] if e.role.startswith("op")]
                edges += parts
                reached += [part.target for part in parts if part.target not in reached]
        counted = ("quant", POLARITY)  # "two shirts", "no shirt"
        numbers = (e for v in reached for e in self.graph.out[v] if e.role in counted)
        between = (e for v in reached for e in self.graph.out[v] if e.target in reached)
        return [*edges, *self._one_of_each(numbers), *between]

    def _to_the_leaves(self, root: str) -> list[Edge]:
        edges: list[Edge] = []
        reached, pending = {root}, [root]
        for variable in pending:  # grows
            followed = self._one_of_each(self.graph.out[variable])
            edges += followed
            new = dict.fromkeys(e.target for e in followed if e.target not in reached)
            reached |= new.keys()
            pending += new
        return edges

    def _one_of_each(self, edges: Iterable[Edge]) -> list[Edge]:
        """For each node, one random edge of each role."""
        by_role: dict[tuple[str, str], list[Edge]] = {}
        for edge in edges:
            by_role.setdefault((edge.source, edge.role), []).append(edge)
        return [same[self._number(len(same))] for same in by_role.values()]

    def _number(self, end: int) -> int:
        return int(self.rng.integers(end))

    def _drawn(self, root: str, edges: Sequence[Edge]) -> Iterator[Graph]:
        """Sample with these edges, or None if the sample is too small."""
        ends = {root, *(edge.source for edge in edges), *(edge.target for edge in edges)}
        if sum(not self.graph.is_constant(variable) for variable in ends) < MIN_NODES:
            return
        nodes = {
            variable: replace(node, names=(node.names[self._number(len(node.names))],))
            for variable, node in self.graph.nodes.items()
            if variable in ends
        }
        yield Graph(nodes, tuple(dict.fromkeys(edges)), root)


FIRST_ARGUMENTS = ("ARG0", "ARG1", "ARG2")
LAST_ARGUMENTS = ("ARG3", "ARG4", "ARG5")
# Roles of an object: those that belong to one of its names, and those of its place.
_NAME_ROLES = ("mod", "quant", "poss", "consist-of", "part-of", "topic", "degree", "polarity")
_PLACE_ROLES = ("op1",)
_NO_EVENTS = ("resemble-01",)
POSSESSION_CONCEPTS = ("wear-01", "have-03")
MAX_PLACES = 2


class Sampler:
    """Draws samples (subgraphs with an event) from a photo's graph.

    Args:
        graph: graph of all captions of a photo.
        rng: generator of the draws.
        detail: probability of each optional detail about an object.
    """

    def __init__(self, graph: Graph, rng: np.random.Generator, *, detail: float = 0.5) -> None:
        self.graph, self.rng, self.detail = graph, rng, detail

    def samples(self) -> Iterator[Graph]:
        """Yield three samples for each predicate, with few to all arguments; samples may repeat."""
        for variable, node in self.graph.nodes.items():
            if not node.is_predicate or node.concept in _NO_EVENTS:
                continue
            roles = {edge.role for edge in self.graph.out[variable]}
            is_plain_attribute = is_attribute(self.graph, variable) and not is_colour(node.concept)
            if is_plain_attribute or not roles & {"ARG0", "ARG1"}:
                continue  # "a parked car" does not become "a car is parked"
            for arguments in (FIRST_ARGUMENTS, FIRST_ARGUMENTS + LAST_ARGUMENTS, None):
                yield self._sample(variable, arguments)

    def _sample(self, root: str, roles: tuple[str, ...] | None) -> Graph:
        draft = _Draft(self.graph, self.rng, self.detail if roles is None else self.detail / 2)
        draft.event(root, roles)
        return draft.graph(root)


class _Draft:
    """A sampled subgraph under construction."""

    def __init__(self, graph: Graph, rng: np.random.Generator, detail: float) -> None:
        self.full_graph, self.rng, self.detail = graph, rng, detail
        self.names: dict[str, Name] = {}
        self.edges: list[Edge] = []

    def graph(self, root: str) -> Graph:
        """Drawn graph, in which each node has one name."""
        nodes = {
            v: replace(self.full_graph.nodes[v], names=(name,)) for v, name in self.names.items()
        }
        edges = [e for e in self.edges if e.source in nodes and e.target in nodes]
        return Graph(nodes, tuple(dict.fromkeys(edges)), root)

    def maybe(self, chance: float) -> bool:
        """Return True with the given probability."""
        return bool(self.rng.random() < chance)

    def name(self, variable: str, caption: int | None = None) -> Name:
        """One name of a node: from the given caption if it has one, else any name."""
        names = self.full_graph.nodes[variable].names
        caption_names = [name for name in names if name.caption == caption]
        candidates = caption_names or names
        return candidates[int(self.rng.integers(len(candidates)))]

    def event(self, variable: str, roles: tuple[str, ...] | None, caption: int = -1) -> None:
        """Add a predicate with arguments in some roles; None adds all roles."""
        self.names[variable] = self.name(variable, caption if caption >= 0 else None)
        by_role: dict[str, list[Edge]] = {}
        for edge in self.full_graph.out[variable]:
            if roles is None or edge.role in roles or edge.role == "polarity":
                by_role.setdefault(edge.role, []).append(edge)
        places = 0
        for role, edges in by_role.items():
            optional = not role.startswith("ARG") and role != "polarity"
            if optional and (places == MAX_PLACES or not self.maybe(0.8)):
                continue
            edge = self._agreeing(edges, self.names[variable].caption)
            places += optional
            self.edges.append(edge)
            self.visit(edge.target, edge)

    def _agreeing(self, edges: list[Edge], caption: int) -> Edge:
        """One of several edges of a role: if possible from the verb's caption."""
        agreeing = [edge for edge in edges if caption in edge.captions] or edges
        return agreeing[int(self.rng.integers(len(agreeing)))]

    def visit(self, variable: str, edge: Edge) -> None:
        """Add the target node of an edge to the sample."""
        if variable in self.names:
            return
        node = self.full_graph.nodes[variable]
        caption = min(edge.captions)
        if node.is_predicate:
            self.event(variable, FIRST_ARGUMENTS, caption)
        elif node.concept in COORDINATORS:
            self.names[variable] = self.name(variable, caption)
            for part in self.full_graph.out[variable]:
                if part.role.startswith("op"):
                    self.edges.append(part)
                    self.visit(part.target, part)
        else:
            # "no" belongs to one caption: its words for the node go with it
            own = caption if self.full_graph.is_negated(variable) else None
            self.visit_entity(variable, own)

    def visit_entity(self, variable: str, caption: int | None = None) -> None:
        """Add an object, place or attribute under one of its names, if possible from a caption."""
        name = self.names[variable] = self.name(variable, caption)
        for edge in self.full_graph.out[variable]:
            same_caption = name.caption in edge.captions
            belongs = edge.role in (*_NAME_ROLES, *_PLACE_ROLES) and same_caption
            belongs |= (
                edge.role in ("part", "location") and same_caption and self.maybe(self.detail)
            )
            if edge.role == "op1" or belongs:
                self.edges.append(edge)
                self.visit(edge.target, edge)
        for edge in self.full_graph.into[variable]:
            self._visit_descriptions(variable, edge, name.caption)

    def _visit_descriptions(self, variable: str, edge: Edge, caption: int) -> None:
        """Add descriptions of an object: colours, owners, clothes, actions."""
        node = self.full_graph.nodes[edge.source]
        same_caption = caption in edge.captions
        if edge.role == "part" and edge.source in self.names:
            self.edges.append(edge)
        elif not same_caption or edge.source in self.names or not node.is_predicate:
            return
        elif is_attribute(self.full_graph, edge.source) and edge.role in ("ARG0", "ARG1"):
            if self.full_graph.is_negated(edge.source):
                return  # no words before a noun say what it is not
            self.names[edge.source] = self.name(edge.source, caption)
            self.edges.append(edge)
        elif (
            node.concept in POSSESSION_CONCEPTS and edge.role == "ARG0" and self.maybe(self.detail)
        ):
            if any(name.concept == node.concept for name in self.names.values()):
                return  # clothes are mentioned once
            self.edges.append(edge)
            self.event(edge.source, FIRST_ARGUMENTS, caption)


def is_attribute(graph: Graph, variable: str) -> bool:
    """Return whether a predicate is written before a noun: a colour, or "parked"."""
    node = graph.nodes[variable]
    edges = graph.out[variable]
    word = node.names[0].word
    is_named = not word or not node.concept.startswith(f"{word.replace(' ', '-')}-")
    if is_colour(node.concept):  # "the dog is not brown": with the same words as "is brown"
        edges = tuple(edge for edge in edges if edge.role != "polarity")
    return len(edges) <= 1 and (is_colour(node.concept) or is_named) and node.is_predicate


def is_colour(concept: str) -> bool:
    """Return whether a label is a colour, such as ``"red-02"``."""
    return concept[:-3] in COLOUR_WORDS


_COLOURS = "red white black blue green brown yellow purple gray tan"
COLOUR_WORDS = frozenset(_COLOURS.split())
