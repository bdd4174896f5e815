"""Long captions: several events in one sentence.

Of one event alone no caption becomes long, and a captioner that is asked for 25 words has seen
hardly any. So samples that are good captions by themselves are put side by side: of one subject
("a dog runs and catches a ball") or of two that share nothing ("while a boy watches").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from augmentation.captions.ssa.graph import Edge, Graph, Name, Node
from augmentation.captions.ssa.sampling import HELD, is_attribute

MOST_EVENTS, MOST_SUBJECTS = 4, 2
_ROOT = "all"


def joined(graphs: Sequence[Graph], rng: np.random.Generator, *, tries: int) -> Iterator[Graph]:
    """Two samples of a photo in one, three and four, rather of the larger ones; repeats occur.

    Args:
        graphs: samples of one merged graph, whose variables they have.
        rng: where draws come from.
        tries: orders in which samples are put side by side.
    """
    events = [graph for graph in graphs if subject_of(graph)]
    sizes = np.array([len(graph.nodes) for graph in events])
    for _ in range(tries):
        kept: list[Graph] = []
        for place in np.argsort(-sizes * rng.random(len(events))):
            more = _beside(kept, events[place])
            if more is None:
                continue
            kept.append(more)
            if len(kept) > 1:
                yield _one(kept)
            if len(kept) == MOST_EVENTS:
                break


def subject_of(graph: Graph) -> str:
    """Whom a sample's event is said of; empty if it is no event that others are put beside."""
    node = graph.nodes[graph.root]
    if not node.is_predicate or node.concept in HELD or is_attribute(graph, graph.root):
        return ""
    arguments = {edge.role: edge.target for edge in graph.out[graph.root]}
    return arguments.get("ARG0") or arguments.get("ARG1") or ""


def _beside(kept: Sequence[Graph], graph: Graph) -> Graph | None:
    """What a sample adds to others; None if it shares more with them than their subject."""
    subject, subjects = subject_of(graph), {subject_of(other) for other in kept}
    if len(subjects | {subject}) > MOST_SUBJECTS:
        return None
    own = {subject} & subjects  # is described already, by one of its names
    if own:
        rest = graph.part(graph.nodes.keys() - own, graph.root)
        graph = graph.part(rest.reachable(graph.root) | own, graph.root)
    new = [node for variable, node in graph.nodes.items() if variable not in own]
    old = [node for other in kept for node in other.nodes.values()]
    variables = {variable for other in kept for variable in other.nodes}
    return None if variables & graph.nodes.keys() - own or _alike(old, new) else graph


def _alike(old: Sequence[Node], new: Sequence[Node]) -> bool:
    """Whether some may be the same: they have one verb, noun or box."""
    labels = {node.concept for node in old if _counts(node)}
    regions = frozenset[int]().union(*(node.regions for node in old))
    return any(node.regions & regions or (_counts(node) and node.concept in labels) for node in new)


def _counts(node: Node) -> bool:
    return node.is_predicate or node.names[0].noun


def _one(graphs: Sequence[Graph]) -> Graph:
    """Samples under a root "and", those of one subject next to each other."""
    subjects = [subject_of(graph) for graph in graphs]
    order = sorted(graphs, key=lambda graph: subjects.index(subject_of(graph)))
    nodes = {_ROOT: Node((Name(concept="and"),))}
    for graph in order:
        nodes |= {variable: node for variable, node in graph.nodes.items() if variable not in nodes}
    parts = [Edge(_ROOT, f"op{n}", graph.root) for n, graph in enumerate(order, start=1)]
    return Graph(nodes, (*parts, *(edge for graph in order for edge in graph.edges)), _ROOT)
