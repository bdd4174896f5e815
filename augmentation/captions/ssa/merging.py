"""One graph of all captions of a photo (CIC-BART-SSA, Algorithm 1 and Fig. 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from augmentation.captions.ssa.clustering import distances, merge_order
from augmentation.captions.ssa.graph import JOINTS, MULTI_SENTENCE, Edge, Graph, Name, Node, renamed

Similarity = Callable[[str, str], float]
# Verbs that mean what their object does; they are like none but themselves.
LIGHT = frozenset(
    ["have", "do", "be", "make", "get", "go", "take", "put", "use", "try", "be-located-at"]
)


@dataclass(frozen=True, kw_only=True)
class Merging:
    """Settings of merging.

    Attributes:
        similarity: of two words, 1 for the same; the cosine of their vectors.
        least_similar: of labels that are taken for the same (the authors' .7).
        least_similar_beside: of predicates' labels whose neighbours all agree (theirs: .5).
    """

    similarity: Similarity
    least_similar: float = 0.7
    least_similar_beside: float = 0.5

    def merge_all(self, graphs: Sequence[Graph]) -> Graph:
        """The graph of several captions; with one, that one.

        Raises:
            ValueError: no graphs.
        """
        if not graphs:
            raise ValueError("there must be a graph to merge: got none")
        open_graphs = {n: renamed(graph, f"c{n}_", n) for n, graph in enumerate(graphs)}
        for i, j in merge_order(distances(list(open_graphs.values()))):
            open_graphs[i] = self.merge(open_graphs[i], open_graphs.pop(j))
        return without_cycles(open_graphs[0])

    def merge(self, first: Graph, second: Graph) -> Graph:
        """Two graphs as one (lines 7 to 15): common nodes once, all others, all edges."""
        common = self.common_nodes(first, second)
        nodes = dict(first.nodes)
        for variable, node in second.nodes.items():
            if variable in common:
                nodes[common[variable]] = _joined(nodes[common[variable]], node)
            else:
                nodes[variable] = node
        edges = _union(first.edges, (
            replace(e, source=common.get(e.source, e.source), target=common.get(e.target, e.target))
            for e in second.edges
        ))  # fmt: skip
        if common:
            return Graph(nodes, edges, first.root)
        return _side_by_side(Graph(nodes, edges, first.root), second.root)

    def common_nodes(self, first: Graph, second: Graph) -> dict[str, str]:
        """Nodes of the second graph that mean the same as one of the first, with that one.

        Things first, by their boxes; then, until no more are found, what hangs on them: "and" and
        "or" of the same things, attributes, numbers and places of the same thing, predicates with
        the same arguments.
        """
        pairs = self._things(first, second)
        before = -1
        while len(pairs) > before:
            before = len(pairs)
            for b in (b for b in second.nodes if b not in pairs):
                a = self._partner(first, second, b, pairs, set(pairs.values()))
                if a is not None:
                    pairs[b] = a
        return pairs

    def _things(self, first: Graph, second: Graph) -> dict[str, str]:
        pairs = []
        for b, theirs in second.nodes.items():
            for a, ours in first.nodes.items():
                likeness = self._same_thing(ours, theirs)
                if likeness is not None:
                    pairs.append((-likeness, a, b))
        matched: dict[str, str] = {}
        for _, a, b in sorted(pairs):
            if b not in matched and a not in matched.values():
                matched[b] = a
        return matched

    def _same_thing(self, ours: Node, theirs: Node) -> float | None:
        """How alike two names of one thing are; None where they are not of one thing."""
        if ours.is_predicate or theirs.is_predicate or ours.is_literal or theirs.is_literal:
            return None
        if (ours.concept in JOINTS) != (theirs.concept in JOINTS):
            return None
        likeness = self._likeness(ours, theirs)
        boxed = bool(ours.regions or theirs.regions)
        if boxed:
            same_kind = not ours.kinds or not theirs.kinds or ours.kinds & theirs.kinds
            return likeness if ours.regions == theirs.regions and same_kind else None
        if ours.chains & theirs.chains:
            return likeness
        both_nouns = ours.names[0].noun and theirs.names[0].noun
        apart = bool(ours.chains and theirs.chains)
        same = both_nouns and not apart and likeness >= self.least_similar
        return likeness if same and _plurals(ours) & _plurals(theirs) else None

    def _likeness(self, ours: Node, theirs: Node) -> float:
        words = {_word(name) for name in ours.names}
        others = {_word(name) for name in theirs.names}
        if words & others:
            return 1.0
        return max(self.similarity(word, two) for word in words for two in others)

    def _partner(
        self, first: Graph, second: Graph, b: str, pairs: dict[str, str], taken: set[str]
    ) -> str | None:
        """The node of the first graph that a node without boxes is the same as."""
        theirs = second.nodes[b]
        if theirs.names[0].noun or theirs.concept == MULTI_SENTENCE:
            return None
        for a, ours in first.nodes.items():
            if a in taken or ours.names[0].noun or ours.is_predicate != theirs.is_predicate:
                continue
            if theirs.is_predicate:
                if self._same_event(first, a, second, b, pairs):
                    return a
            elif theirs.concept in JOINTS:
                ops = [pairs.get(edge.target) for edge in second.out[b]]
                if ours.concept == theirs.concept and set(ops) == {
                    edge.target for edge in first.out[a]
                }:
                    return a
            elif self._same_detail(first, a, second, b, pairs):
                return a
        return None

    def _same_event(
        self, first: Graph, a: str, second: Graph, b: str, pairs: dict[str, str]
    ) -> bool:
        """Whether two predicates are alike: by label, and no argument that differs."""
        ours = {edge.role: edge.target for edge in first.out[a] if edge.role.startswith("ARG")}
        theirs = {edge.role: edge.target for edge in second.out[b] if edge.role.startswith("ARG")}
        shared = ours.keys() & theirs.keys()
        agree = [pairs.get(theirs[role]) == ours[role] for role in shared]
        if not agree or not all(agree):
            return False
        first_event, second_event = first.nodes[a], second.nodes[b]
        if first_event.concept == second_event.concept:
            return True
        if LIGHT & {_word(name) for name in (*first_event.names, *second_event.names)}:
            return False
        least = self.least_similar_beside if ours.keys() == theirs.keys() and len(ours) > 1 else (
            self.least_similar
        )  # fmt: skip
        return self._likeness(first_event, second_event) >= least

    def _same_detail(
        self, first: Graph, a: str, second: Graph, b: str, pairs: dict[str, str]
    ) -> bool:
        """Whether two attributes, numbers or places hang on the same things in the same roles."""
        up = {(edge.role, edge.source) for edge in first.into[a]}
        down = {(edge.role, edge.target) for edge in first.out[a]}
        above = {(edge.role, pairs.get(edge.source)) for edge in second.into[b]}
        below = {(edge.role, pairs.get(edge.target)) for edge in second.out[b]}
        if not up & above or down != below:
            return False
        ours, theirs = first.nodes[a], second.nodes[b]
        if ours.is_literal or theirs.is_literal:
            return ours.concept == theirs.concept
        return self._likeness(ours, theirs) >= self.least_similar


def _word(name: Name) -> str:
    return name.concept.rsplit("-", 1)[0] if name.concept[-2:].isdigit() else name.concept


def _plurals(node: Node) -> set[bool]:
    return {name.plural for name in node.names}


def _joined(ours: Node, theirs: Node) -> Node:
    return Node(
        names=tuple(dict.fromkeys((*ours.names, *theirs.names))),
        regions=ours.regions | theirs.regions,
        chains=ours.chains | theirs.chains,
        kinds=ours.kinds | theirs.kinds,
    )


def _union(first: Sequence[Edge], second: Iterable[Edge]) -> tuple[Edge, ...]:
    """Edges of both; the same edge once, with the captions of both."""
    edges: dict[tuple[str, str, str, str], Edge] = {}
    for edge in (*first, *second):
        key = (edge.source, edge.role, edge.target, edge.word)
        known = edges.get(key)
        captions = edge.captions | (known.captions if known else frozenset())
        if edge.source != edge.target:
            edges[key] = replace(edge, captions=captions)
    return tuple(edges.values())


def _side_by_side(graph: Graph, other_root: str) -> Graph:
    """Two graphs without common nodes under a node ``multi-sentence`` (lines 10 and 11)."""
    if graph.nodes[graph.root].concept == MULTI_SENTENCE:
        top, nodes, edges = graph.root, dict(graph.nodes), graph.edges
    else:
        top = f"m_{graph.root}"  # by its size two clusters could have the same
        nodes = {**graph.nodes, top: Node((Name(MULTI_SENTENCE),))}
        edges = (*graph.edges, Edge(top, "snt1", graph.root))
    number = sum(edge.source == top for edge in edges) + 1
    return Graph(nodes, (*edges, Edge(top, f"snt{number}", other_root)), top)


def without_cycles(graph: Graph) -> Graph:
    """The graph without edges that lead back to where they came from.

    AMR has no cycles of edges; merging may close one. The edge that closes it when nodes are
    visited in order is dropped, that said by most captions is visited first.
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
    kept = tuple(edge for edge in graph.edges if id(edge) not in dropped)
    return Graph(graph.nodes, kept, graph.root)
