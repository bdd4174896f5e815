"""Samples of a photo's graph as the authors' code draws them (CIC-BART-SSA, section 4, step 2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from augmentation.ssa.graph import COORDINATORS, Edge, Graph
from augmentation.ssa.sampling import FIRST_ARGUMENTS, LAST_ARGUMENTS

MIN_NODES = 3
POLARITY = "polarity"  # theirs leaves "not" out of the samples of arguments
LISTS = ("include-91",)


class LeafSampler:
    """Draws samples of every predicate that has arguments.

    One sample has its ARG0 to ARG2 with their numbers. Each of ARG3, ARG4 and ARG5 that it has
    gives one more, which has the former's arguments, too. The last one has all that edges lead to
    from there, in any role, down to the leaves. Of a node's edges in one role one is drawn, and of
    a node's synonyms one. Samples of fewer than three nodes are left out.

    Args:
        graph: of all captions of a photo.
        rng: generator of the draws.
    """

    def __init__(self, graph: Graph, rng: np.random.Generator) -> None:
        self.graph, self.rng = graph, rng

    def samples(self) -> Iterator[Graph]:
        """From few to all of a predicate's arguments; repeats occur."""
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
        """A predicate with arguments, the parts of lists among these, and numbers."""
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
        """Of each node one edge of a role, drawn at random."""
        by_role: dict[tuple[str, str], list[Edge]] = {}
        for edge in edges:
            by_role.setdefault((edge.source, edge.role), []).append(edge)
        return [same[self._number(len(same))] for same in by_role.values()]

    def _number(self, end: int) -> int:
        return int(self.rng.integers(end))

    def _drawn(self, root: str, edges: Sequence[Edge]) -> Iterator[Graph]:
        """The sample of these edges, unless it is too small."""
        ends = {root, *(edge.source for edge in edges), *(edge.target for edge in edges)}
        if sum(not self.graph.is_constant(variable) for variable in ends) < MIN_NODES:
            return
        nodes = {
            variable: replace(node, names=(node.names[self._number(len(node.names))],))
            for variable, node in self.graph.nodes.items()
            if variable in ends
        }
        yield Graph(nodes, tuple(dict.fromkeys(edges)), root)
