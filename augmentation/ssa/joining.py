"""Long captions: several events in one sentence.

A single event gives no long caption, so a captioner that must write 25 words has seen hardly any.
Samples that are good captions by themselves are joined: events of one subject ("a dog runs and
catches a ball") or of two that share nothing ("while a boy watches").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from augmentation.ssa.graph import Edge, Graph, Name, Node
from augmentation.ssa.sampling import POSSESSION_CONCEPTS, is_attribute

MAX_EVENTS, MAX_SUBJECTS = 4, 2
_ROOT = "all"


def join_events(
    graphs: Sequence[Graph], rng: np.random.Generator, *, tries: int
) -> Iterator[Graph]:
    """Two, three or four samples of a photo in one, preferably large ones; repeats occur.

    Args:
        graphs: samples of one merged graph, whose variables they have.
        rng: generator of the draws.
        tries: orders in which samples are joined.
    """
    events = [graph for graph in graphs if subject_of(graph)]
    sizes = np.array([len(graph.nodes) for graph in events])
    for _ in range(tries):
        parts: list[Graph] = []
        for place in np.argsort(-sizes * rng.random(len(events))):
            addition = _addition(parts, events[place])
            if addition is None:
                continue
            parts.append(addition)
            if len(parts) > 1:
                yield _coordinate(parts)
            if len(parts) == MAX_EVENTS:
                break


def subject_of(graph: Graph) -> str:
    """The subject of a sample's event; empty if the event cannot be joined to others."""
    node = graph.nodes[graph.root]
    if (
        not node.is_predicate
        or node.concept in POSSESSION_CONCEPTS
        or is_attribute(graph, graph.root)
    ):
        return ""
    arguments = {edge.role: edge.target for edge in graph.out[graph.root]}
    subject = arguments.get("ARG0") or arguments.get("ARG1") or ""
    return "" if subject and graph.is_negated(subject) else subject  # "no dog runs" stands alone


def _addition(parts: Sequence[Graph], graph: Graph) -> Graph | None:
    """What a sample adds to the parts; None if it shares more with them than a subject."""
    subject, subjects = subject_of(graph), {subject_of(other) for other in parts}
    if len(subjects | {subject}) > MAX_SUBJECTS:
        return None
    shared = {subject} & subjects  # is described already, by one of its names
    if shared:
        remainder = graph.part(graph.nodes.keys() - shared, graph.root)
        graph = graph.part(remainder.reachable(graph.root) | shared, graph.root)
    new = [node for variable, node in graph.nodes.items() if variable not in shared]
    old = [node for other in parts for node in other.nodes.values()]
    variables = {variable for other in parts for variable in other.nodes}
    return None if variables & graph.nodes.keys() - shared or _overlap(old, new) else graph


def _overlap(old: Sequence[Node], new: Sequence[Node]) -> bool:
    """Whether some nodes may be the same: with a common verb, noun or box."""
    labels = {node.concept for node in old if _is_content(node)}
    regions = frozenset[int]().union(*(node.regions for node in old))
    return any(
        node.regions & regions or (_is_content(node) and node.concept in labels) for node in new
    )


def _is_content(node: Node) -> bool:
    return node.is_predicate or node.names[0].noun


def _coordinate(graphs: Sequence[Graph]) -> Graph:
    """Samples under a root "and", those of one subject next to each other."""
    subjects = [subject_of(graph) for graph in graphs]
    order = sorted(graphs, key=lambda graph: subjects.index(subject_of(graph)))
    nodes = {_ROOT: Node((Name(concept="and"),))}
    for graph in order:
        nodes |= {variable: node for variable, node in graph.nodes.items() if variable not in nodes}
    parts = [Edge(_ROOT, f"op{n}", graph.root) for n, graph in enumerate(order, start=1)]
    return Graph(nodes, (*parts, *(edge for graph in order for edge in graph.edges)), _ROOT)
