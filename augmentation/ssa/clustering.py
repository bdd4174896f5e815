"""The order of merging graphs: average linkage (UPGMA; Sokal and Michener, 1958)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augmentation.ssa.graph import Graph

# Agreement of two graphs: smatch (Cai and Knight, 2013).
#
# The best match of variables is found by hill climbing: from a match of equal labels and from
# random ones, the best move of a variable or exchange of two is made until none improves the match.
TOP = "TOP"


@dataclass(frozen=True, slots=True)
class Agreement:
    """Triples of two graphs.

    Attributes:
        common: triples that agree under the best match.
        first, second: triples of each graph.
    """

    common: int
    first: int
    second: int

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall, in [0, 1]."""
        return 2 * self.common / max(self.first + self.second, 1)

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(
            self.common + other.common, self.first + other.first, self.second + other.second
        )


@dataclass(frozen=True, slots=True)
class Triples:
    """A graph's triples as smatch counts them: variables are numbers.

    Attributes:
        facts: of each variable, its label and its constants.
        relations: roles by pair of variables.
        size: triples in all.
    """

    facts: tuple[frozenset[tuple[str, str]], ...]
    relations: Mapping[tuple[int, int], frozenset[str]]
    size: int


def triples(graph: Graph) -> Triples:
    """The triples of a graph, its root among them."""
    order = [v for v in graph.nodes if not graph.is_constant(v)]
    number = {variable: n for n, variable in enumerate(order)}
    facts: list[set[tuple[str, str]]] = [{("instance", graph.nodes[v].concept)} for v in order]
    facts[number[graph.root]].add((TOP, graph.nodes[graph.root].concept))
    relations: dict[tuple[int, int], set[str]] = defaultdict(set)
    for edge in graph.edges:
        if edge.source not in number:
            continue
        if edge.target in number:
            relations[number[edge.source], number[edge.target]].add(edge.role)
        else:
            facts[number[edge.source]].add((edge.role, graph.nodes[edge.target].concept))
    size = sum(map(len, facts)) + sum(map(len, relations.values()))
    frozen = {pair: frozenset(roles) for pair, roles in relations.items()}
    return Triples(tuple(map(frozenset, facts)), frozen, size)


def smatch(first: Graph, second: Graph, *, restarts: int = 4, seed: int = 0) -> Agreement:
    """Agreement of two graphs.

    Args:
        first, second: symmetric.
        restarts: random starts of the climb, besides the start from equal labels.
        seed: of the random starts.
    """
    return agreement(triples(first), triples(second), restarts=restarts, seed=seed)


def agreement(first: Triples, second: Triples, *, restarts: int = 4, seed: int = 0) -> Agreement:
    """See `smatch`."""
    if len(first.facts) > len(second.facts):
        matched = _best(second, first, restarts, seed)
    else:
        matched = _best(first, second, restarts, seed)
    return Agreement(matched, first.size, second.size)


def _best(first: Triples, second: Triples, restarts: int, seed: int) -> int:
    climb = _Climb(first, second)
    best = climb.run(climb.by_labels())
    rng = np.random.default_rng(seed)
    for _ in range(restarts):
        if best == min(first.size, second.size):
            break
        best = max(best, climb.run(rng.permutation(len(second.facts))[: len(first.facts)].tolist()))
    return best


class _Climb:
    """Matches of the variables of ``first`` to those of ``second``, which has at least as many."""

    def __init__(self, first: Triples, second: Triples) -> None:
        self.size, self.width = len(first.facts), len(second.facts)
        self.label_matches = [[len(a & b) for b in second.facts] for a in first.facts]
        self.second_relations = second.relations
        # relations of each variable, as (other end, roles, whether it is the source)
        self.neighbours: list[list[tuple[int, frozenset[str], bool]]] = [[] for _ in first.facts]
        for (source, target), roles in first.relations.items():
            self.neighbours[source].append((target, roles, True))
            if source != target:
                self.neighbours[target].append((source, roles, False))
        # i and its neighbour share a relation if they are matched to the last two
        self.common = [
            (i, other, *(pair if is_source else pair[::-1]))
            for i, neighbours in enumerate(self.neighbours)
            for other, roles, is_source in neighbours
            for pair, second_roles in second.relations.items()
            if roles & second_roles
        ]

    def by_labels(self) -> list[int]:
        """The start: greedily by equal labels and constants."""
        pairs = sorted(
            (
                (-value, i, j)
                for i, row in enumerate(self.label_matches)
                for j, value in enumerate(row)
            )
        )
        match, used = [-1] * self.size, set()
        for _, i, j in pairs:
            if match[i] < 0 and j not in used:
                match[i] = j
                used.add(j)
        return match

    def run(self, match: list[int]) -> int:
        """Climb from a match; the number of common triples at the top."""
        while True:
            gain, i, j = max((self._gain(match, i, j), -i, -j) for i, j in self._moves(match))
            if gain <= 0:
                return self._total(match)
            _move(match, -i, -j)

    def _moves(self, match: list[int]) -> list[tuple[int, int]]:
        """Promising moves: to equal labels, or next to a neighbour's match."""
        moves = {(0, match[0])}
        for i in range(self.size):
            moves.update((i, j) for j, value in enumerate(self.label_matches[i]) if value)
        for i, other, target, neighbour_target in self.common:
            if neighbour_target == match[other]:
                moves.add((i, target))
        return sorted((i, j) for i, j in moves if match[i] != j or (i, j) == (0, match[0]))

    def _gain(self, match: list[int], i: int, j: int) -> int:
        """Triples gained by matching ``i`` to ``j``; the variable with ``j`` gets that of ``i``."""
        previous = match[i]
        if previous == j:
            return 0
        other = match.index(j) if j in match else -1
        before = self._around(match, i, other)
        _move(match, i, j)
        gain = self._around(match, i, other) - before
        match[i] = previous
        if other >= 0:
            match[other] = j
        return gain

    def _around(self, match: list[int], i: int, other: int) -> int:
        """Common triples that ``i`` or ``other`` takes part in."""
        matched = self.label_matches[i][match[i]] + self._relations(match, i, -1)
        if other >= 0:
            matched += self.label_matches[other][match[other]] + self._relations(match, other, i)
        return matched

    def _relations(self, match: list[int], i: int, excluded: int) -> int:
        matched = 0
        for end, roles, is_source in self.neighbours[i]:
            if end != excluded:
                pair = (match[i], match[end]) if is_source else (match[end], match[i])
                second_roles = self.second_relations.get(pair)
                matched += len(roles & second_roles) if second_roles else 0
        return matched

    def _total(self, match: list[int]) -> int:
        label_total = sum(self.label_matches[i][j] for i, j in enumerate(match))
        relation_total = sum(
            len(roles & self.second_relations.get((match[i], match[end]), frozenset()))
            for i, neighbours in enumerate(self.neighbours)
            for end, roles, is_source in neighbours
            if is_source
        )
        return label_total + relation_total


def _move(match: list[int], i: int, j: int) -> None:
    if j in match:
        match[match.index(j)] = match[i]
    match[i] = j


def distances(graphs: Sequence[Graph]) -> NDArray[np.float64]:
    """``(N, N)`` distances 1 − smatch, symmetric, 0 on the diagonal (Algorithm 1, line 4)."""
    all_triples = [triples(graph) for graph in graphs]
    matrix = np.zeros((len(graphs), len(graphs)))
    for i, graph_triples in enumerate(all_triples):
        for j in range(i):
            matrix[i, j] = matrix[j, i] = (
                1 - agreement(graph_triples, all_triples[j], restarts=1).f1
            )
    return matrix


def merge_order(distance: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Pairs in the order of merging, the closest first (Algorithm 1, line 5).

    A merged pair keeps its first, smaller number. Ties go to the smallest numbers.

    Args:
        distance: ``(N, N)``, symmetric.
    """
    members = {i: [i] for i in range(len(distance))}
    order = []
    while len(members) > 1:
        pairs = [(i, j) for i in members for j in members if i < j]
        means = [distance[np.ix_(members[i], members[j])].mean() for i, j in pairs]
        i, j = pairs[int(np.argmin(np.round(means, 9)))]
        order.append((i, j))
        members[i] += members.pop(j)
    return order
