"""Merge the graphs of a photo's captions into one graph (CIC-BART-SSA, Algorithm 1, Fig. 7).

`merge_order` chooses the pairs to merge by average linkage (UPGMA; Sokal and Michener, 1958).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from augmentation.ssa.graph import (
    COORDINATORS,
    MULTI_SENTENCE,
    Edge,
    Graph,
    Name,
    Node,
    rename_variables,
)

Similarity = Callable[[str, str], float]
# Light verbs take their meaning from their object; they are similar only to themselves.
LIGHT_VERBS = frozenset(
    ["have", "do", "be", "make", "get", "go", "take", "put", "use", "try", "be-located-at"]
)
# Agreement of two graphs: smatch (Cai and Knight, 2013).
#
# The best match of variables is found by hill climbing: from a match of equal labels and from
# random ones, the best move of a variable or exchange of two is made until none improves the match.
TOP = "TOP"


@dataclass(frozen=True, kw_only=True)
class Merging:
    """Settings for merging the graphs of a photo's captions.

    Attributes:
        similarity: similarity of two words, 1 for the same; the cosine of their vectors.
        min_similarity: minimum similarity of labels that count as the same (the authors' .7).
        min_similarity_same_arguments: minimum similarity of predicates with the same arguments (the
            authors' .5).
    """

    similarity: Similarity
    min_similarity: float = 0.7
    min_similarity_same_arguments: float = 0.5

    def merge_all(self, graphs: Sequence[Graph]) -> Graph:
        """Merge the graphs of several captions; a single graph stays unchanged.

        Raises:
            ValueError: ``graphs`` is empty.
        """
        if not graphs:
            raise ValueError("merging needs at least one graph: got none")
        open_graphs = {n: rename_variables(graph, f"c{n}_", n) for n, graph in enumerate(graphs)}
        for i, j in merge_order(distances(list(open_graphs.values()))):
            open_graphs[i] = self.merge(open_graphs[i], open_graphs.pop(j))
        return without_cycles(open_graphs[0])

    def merge(self, first: Graph, second: Graph) -> Graph:
        """Merge two graphs (lines 7 to 15): common nodes once, all other nodes, all edges."""
        common = self.common_nodes(first, second)
        nodes = dict(first.nodes)
        for variable, node in second.nodes.items():
            if variable in common:
                nodes[common[variable]] = _merge_nodes(nodes[common[variable]], node)
            else:
                nodes[variable] = node
        edges = _union(first.edges, (
            replace(e, source=common.get(e.source, e.source), target=common.get(e.target, e.target))
            for e in second.edges
        ))  # fmt: skip
        if common:
            return Graph(nodes, edges, first.root)
        return _join_under_root(Graph(nodes, edges, first.root), second.root)

    def common_nodes(self, first: Graph, second: Graph) -> dict[str, str]:
        """Map nodes of the second graph to nodes of the first graph with the same meaning.

        Objects first, by their boxes; then, until no more are found, nodes that depend on them:
        "and" and "or" of the same objects, attributes, numbers and places of the same object,
        predicates with the same arguments.
        """
        pairs = self._match_entities(first, second)
        before = -1
        while len(pairs) > before:
            before = len(pairs)
            for b in (b for b in second.nodes if b not in pairs):
                a = self._partner(first, second, b, pairs, set(pairs.values()))
                if a is not None:
                    pairs[b] = a
        return pairs

    def _match_entities(self, first: Graph, second: Graph) -> dict[str, str]:
        pairs = []
        for b, second_node in second.nodes.items():
            for a, first_node in first.nodes.items():
                similarity = self._entity_similarity(first_node, second_node)
                if similarity is not None:
                    pairs.append((-similarity, a, b))
        matched: dict[str, str] = {}
        for _, a, b in sorted(pairs):
            if b not in matched and a not in matched.values():
                matched[b] = a
        return matched

    def _entity_similarity(self, first_node: Node, second_node: Node) -> float | None:
        """Similarity of two nodes that show one object; None for different objects."""
        if (
            first_node.is_predicate
            or second_node.is_predicate
            or first_node.is_literal
            or second_node.is_literal
        ):
            return None
        if (first_node.concept in COORDINATORS) != (second_node.concept in COORDINATORS):
            return None
        similarity = self._name_similarity(first_node, second_node)
        has_boxes = bool(first_node.regions or second_node.regions)
        if has_boxes:
            # In COCO Entities the only kind is the class, which is a name and may be another one.
            kinds, other_kinds = (n.kinds - n.chains for n in (first_node, second_node))
            same_kind = not kinds or not other_kinds or kinds & other_kinds
            return similarity if first_node.regions == second_node.regions and same_kind else None
        if first_node.chains & second_node.chains:
            return similarity
        both_nouns = first_node.names[0].noun and second_node.names[0].noun
        different_chains = bool(first_node.chains and second_node.chains)
        is_match = both_nouns and not different_chains and similarity >= self.min_similarity
        return similarity if is_match and _plurals(first_node) & _plurals(second_node) else None

    def _name_similarity(self, first_node: Node, second_node: Node) -> float:
        first_words = {word_of(name) for name in first_node.names}
        second_words = {word_of(name) for name in second_node.names}
        if first_words & second_words:
            return 1.0
        return max(self.similarity(word, other) for word in first_words for other in second_words)

    def _partner(
        self, first: Graph, second: Graph, b: str, pairs: dict[str, str], matched: set[str]
    ) -> str | None:
        """Node of the first graph that matches a node without boxes."""
        second_node = second.nodes[b]
        if second_node.names[0].noun or second_node.concept == MULTI_SENTENCE:
            return None
        for a, first_node in first.nodes.items():
            if (
                a in matched
                or first_node.names[0].noun
                or first_node.is_predicate != second_node.is_predicate
            ):
                continue
            if second_node.is_predicate:
                if self._same_event(first, a, second, b, pairs):
                    return a
            elif second_node.concept in COORDINATORS:
                ops = [pairs.get(edge.target) for edge in second.out[b]]
                if first_node.concept == second_node.concept and set(ops) == {
                    edge.target for edge in first.out[a]
                }:
                    return a
            elif self._same_detail(first, a, second, b, pairs):
                return a
        return None

    def _same_event(
        self, first: Graph, a: str, second: Graph, b: str, pairs: dict[str, str]
    ) -> bool:
        """Return whether two predicates match: similar labels, and no conflicting argument."""
        first_arguments = {
            edge.role: edge.target for edge in first.out[a] if edge.role.startswith("ARG")
        }
        second_arguments = {
            edge.role: edge.target for edge in second.out[b] if edge.role.startswith("ARG")
        }
        shared = first_arguments.keys() & second_arguments.keys()
        agreements = [pairs.get(second_arguments[role]) == first_arguments[role] for role in shared]
        if not agreements or not all(agreements):
            return False
        first_event, second_event = first.nodes[a], second.nodes[b]
        if first_event.concept == second_event.concept:
            return True
        if LIGHT_VERBS & {word_of(name) for name in (*first_event.names, *second_event.names)}:
            return False
        min_similarity = self.min_similarity
        if first_arguments.keys() == second_arguments.keys() and len(first_arguments) > 1:
            min_similarity = self.min_similarity_same_arguments
        return self._name_similarity(first_event, second_event) >= min_similarity

    def _same_detail(
        self, first: Graph, a: str, second: Graph, b: str, pairs: dict[str, str]
    ) -> bool:
        """Return whether two attributes, numbers or places have equal objects in equal roles."""
        sources = {(edge.role, edge.source) for edge in first.into[a]}
        targets = {(edge.role, edge.target) for edge in first.out[a]}
        mapped_sources = {(edge.role, pairs.get(edge.source)) for edge in second.into[b]}
        mapped_targets = {(edge.role, pairs.get(edge.target)) for edge in second.out[b]}
        if not sources & mapped_sources or targets != mapped_targets:
            return False
        first_node, second_node = first.nodes[a], second.nodes[b]
        if first_node.is_literal or second_node.is_literal:
            return first_node.concept == second_node.concept
        return self._name_similarity(first_node, second_node) >= self.min_similarity


def word_of(name: Name) -> str:
    """Label of a name without its sense, for comparisons."""
    return name.concept.rsplit("-", 1)[0] if name.concept[-2:].isdigit() else name.concept


def _plurals(node: Node) -> set[bool]:
    return {name.plural for name in node.names}


def _merge_nodes(first: Node, second: Node) -> Node:
    return Node(
        names=tuple(dict.fromkeys((*first.names, *second.names))),
        regions=first.regions | second.regions,
        chains=first.chains | second.chains,
        kinds=first.kinds | second.kinds,
    )


def _union(first: Sequence[Edge], second: Iterable[Edge]) -> tuple[Edge, ...]:
    """Edges of both graphs; a shared edge occurs once, with the captions of both."""
    edges: dict[tuple[str, str, str, str], Edge] = {}
    for edge in (*first, *second):
        key = (edge.source, edge.role, edge.target, edge.word)
        existing = edges.get(key)
        captions = edge.captions | (existing.captions if existing else frozenset())
        if edge.source != edge.target:
            edges[key] = replace(edge, captions=captions)
    return tuple(edges.values())


def _join_under_root(graph: Graph, other_root: str) -> Graph:
    """Join two graphs without common nodes under a ``multi-sentence`` node (lines 10 and 11)."""
    if graph.nodes[graph.root].concept == MULTI_SENTENCE:
        top, nodes, edges = graph.root, dict(graph.nodes), graph.edges
    else:
        top = f"m_{graph.root}"  # a name by size could occur in two clusters
        nodes = {**graph.nodes, top: Node((Name(MULTI_SENTENCE),))}
        edges = (*graph.edges, Edge(top, "snt1", graph.root))
    number = sum(edge.source == top for edge in edges) + 1
    return Graph(nodes, (*edges, Edge(top, f"snt{number}", other_root)), top)


def without_cycles(graph: Graph) -> Graph:
    """Remove the edges of a graph that close a cycle.

    AMR has no cycles; merging may close one. The edge that closes it when nodes are visited in
    order is dropped; edges of most captions are visited first.
    """
    state: dict[str, int] = {}
    dropped: set[int] = set()

    def visit(variable: str) -> None:
        state[variable] = 1
        for edge in sorted(graph.out[variable], key=lambda e: -len(e.captions)):
            if state.get(edge.target) == 1:
                dropped.add(id(edge))
            elif edge.target not in state:
                visit(edge.target)
        state[variable] = 2

    for variable in graph.nodes:
        if variable not in state:
            visit(variable)
    if not dropped:
        return graph
    edges = tuple(edge for edge in graph.edges if id(edge) not in dropped)
    return Graph(graph.nodes, edges, graph.root)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Numbers of matching and total triples of two graphs.

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
    """Triples of a graph in the form that smatch counts, with numbered variables.

    Attributes:
        facts: facts of each variable, its label and its constants.
        relations: roles by pair of variables.
        size: triples in all.
    """

    facts: tuple[frozenset[tuple[str, str]], ...]
    relations: Mapping[tuple[int, int], frozenset[str]]
    size: int


def triples(graph: Graph) -> Triples:
    """Collect the triples of a graph, including its root."""
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
    """Compute the smatch agreement of two graphs.

    Args:
        first, second: symmetric.
        restarts: random starts of the climb, besides the start from equal labels.
        seed: seed of the random starts.
    """
    return agreement(triples(first), triples(second), restarts=restarts, seed=seed)


def agreement(first: Triples, second: Triples, *, restarts: int = 4, seed: int = 0) -> Agreement:
    """Compute the agreement of two sets of triples, see `smatch`."""
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
    """Hill climbing over matches of the variables of ``first`` to those of ``second``."""

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
        """Initial match: greedily by equal labels and constants."""
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
        """Climb from a match, and return the number of common triples at the optimum."""
        while True:
            gain, i, j = max((self._gain(match, i, j), -i, -j) for i, j in self._moves(match))
            if gain <= 0:
                return self._total(match)
            _move(match, -i, -j)

    def _moves(self, match: list[int]) -> list[tuple[int, int]]:
        """Promising moves: to equal labels, or next to the match of a neighbour."""
        moves = {(0, match[0])}
        for i in range(self.size):
            moves.update((i, j) for j, value in enumerate(self.label_matches[i]) if value)
        for i, other, target, neighbour_target in self.common:
            if neighbour_target == match[other]:
                moves.add((i, target))
        return sorted((i, j) for i, j in moves if match[i] != j or (i, j) == (0, match[0]))

    def _gain(self, match: list[int], i: int, j: int) -> int:
        """Gain in triples by matching ``i`` to ``j``; the variable matched to ``j`` is swapped."""
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
        """Number of common triples that involve ``i`` or ``other``."""
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
    """Distances ``(N, N)``, 1 − smatch, symmetric, 0 on the diagonal (Algorithm 1, line 4)."""
    all_triples = [triples(graph) for graph in graphs]
    matrix = np.zeros((len(graphs), len(graphs)))
    for i, graph_triples in enumerate(all_triples):
        for j in range(i):
            matrix[i, j] = matrix[j, i] = (
                1 - agreement(graph_triples, all_triples[j], restarts=1).f1
            )
    return matrix


def merge_order(distance: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Pairs in merging order, closest first (Algorithm 1, line 5).

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
