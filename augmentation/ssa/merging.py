"""One graph of all captions of a photo (CIC-BART-SSA, Algorithm 1 and Fig. 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from augmentation.ssa.clustering import distances, merge_order
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


@dataclass(frozen=True, kw_only=True)
class Merging:
    """Settings of merging.

    Attributes:
        similarity: of two words, 1 for the same; the cosine of their vectors.
        min_similarity: of labels that count as the same (the authors' .7).
        min_similarity_same_arguments: of predicates with the same arguments (the authors' .5).
    """

    similarity: Similarity
    min_similarity: float = 0.7
    min_similarity_same_arguments: float = 0.5

    def merge_all(self, graphs: Sequence[Graph]) -> Graph:
        """The graph of several captions; a single graph stays as it is.

        Raises:
            ValueError: no graphs.
        """
        if not graphs:
            raise ValueError("there must be a graph to merge: got none")
        open_graphs = {n: rename_variables(graph, f"c{n}_", n) for n, graph in enumerate(graphs)}
        for i, j in merge_order(distances(list(open_graphs.values()))):
            open_graphs[i] = self.merge(open_graphs[i], open_graphs.pop(j))
        return without_cycles(open_graphs[0])

    def merge(self, first: Graph, second: Graph) -> Graph:
        """Two graphs as one (lines 7 to 15): common nodes once, all others, all edges."""
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
        """Nodes of the second graph that mean the same as one of the first, with that one.

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
        """The similarity of two nodes for one object; None where the objects differ."""
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
        """The node of the first graph that matches a node without boxes."""
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
        """Whether two predicates match: similar labels, and no argument that differs."""
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
        """Whether two attributes, numbers or places have the same objects in the same roles."""
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
    """The label of a name without its sense, by which names are compared."""
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
    """Edges of both graphs; a common edge once, with the captions of both."""
    edges: dict[tuple[str, str, str, str], Edge] = {}
    for edge in (*first, *second):
        key = (edge.source, edge.role, edge.target, edge.word)
        existing = edges.get(key)
        captions = edge.captions | (existing.captions if existing else frozenset())
        if edge.source != edge.target:
            edges[key] = replace(edge, captions=captions)
    return tuple(edges.values())


def _join_under_root(graph: Graph, other_root: str) -> Graph:
    """Two graphs without common nodes under a node ``multi-sentence`` (lines 10 and 11)."""
    if graph.nodes[graph.root].concept == MULTI_SENTENCE:
        top, nodes, edges = graph.root, dict(graph.nodes), graph.edges
    else:
        top = f"m_{graph.root}"  # a name by size could occur in two clusters
        nodes = {**graph.nodes, top: Node((Name(MULTI_SENTENCE),))}
        edges = (*graph.edges, Edge(top, "snt1", graph.root))
    number = sum(edge.source == top for edge in edges) + 1
    return Graph(nodes, (*edges, Edge(top, f"snt{number}", other_root)), top)


def without_cycles(graph: Graph) -> Graph:
    """The graph without edges that close a cycle.

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
