"""What samples of a photo's graph claim: never more than one of its captions does."""

from __future__ import annotations

import numpy as np

from augmentation.ssa.event_sampling import Sampler
from augmentation.ssa.graph import Edge, Graph, Name, Node
from augmentation.ssa.penman import read_penman


def samples_of(graph: Graph, *, root: str, detail: float = 0.5) -> list[Graph]:
    """Samples of a predicate by 30 seeds."""
    drawn = (
        sample
        for seed in range(30)
        for sample in Sampler(graph, np.random.default_rng(seed), detail=detail).samples()
    )
    return [sample for sample in drawn if sample.root == root]


def named(*names: str) -> Node:
    """A node with a name in each caption."""
    return Node(tuple(Name(concept=name, caption=number) for number, name in enumerate(names)))


def edge(source: str, role: str, target: str, *captions: int) -> Edge:
    return Edge(source=source, role=role, target=target, captions=frozenset(captions))


def labels(samples: list[Graph]) -> set[tuple[str, ...]]:
    return {tuple(sorted(node.concept for node in s.nodes.values())) for s in samples}


def test_numbers_and_attributes_stay_with_the_name_of_their_caption():
    nodes = {
        "r": named("ride-01", "ride-01"),
        "h": named("horse", "horse"),
        "g": named("girl", "woman"),
        "q": named("2"),
        "y": Node((Name(concept="young", caption=1),)),
    }
    edges = (
        edge("r", "ARG0", "g", 0, 1),
        edge("r", "ARG1", "h", 0, 1),
        edge("g", "quant", "q", 0),
        edge("g", "mod", "y", 1),
    )
    drawn = labels(samples_of(Graph(nodes, edges, "r"), root="r"))
    assert drawn == {("2", "girl", "horse", "ride-01"), ("horse", "ride-01", "woman", "young")}


def test_a_verb_has_the_object_of_its_own_caption():
    nodes = {
        "c": named("chase-01", "eat-01"),
        "d": named("dog", "dog"),
        "b": named("ball"),
        "s": Node((Name(concept="sausage", caption=1),)),
    }
    edges = (
        edge("c", "ARG0", "d", 0, 1),
        edge("c", "ARG1", "b", 0),
        edge("c", "ARG1", "s", 1),
    )
    drawn = labels(samples_of(Graph(nodes, edges, "c"), root="c"))
    assert drawn == {("ball", "chase-01", "dog"), ("dog", "eat-01", "sausage")}


def test_an_event_has_at_most_two_places_and_the_like():
    graph = read_penman(
        "(r / ride-01 :ARG0 (m / man) :location (b / beach) :time (e / evening) "
        ":manner (q / quick) :direction (n / north))"
    )
    assert max(len(sample.nodes) - 2 for sample in samples_of(graph, root="r")) == 2


def test_clothes_are_mentioned_once():
    graph = read_penman(
        "(r / ride-01 :ARG0 (m / man :ARG0-of (w / wear-01 :ARG1 (s / shirt)) "
        ":ARG0-of (w2 / wear-01 :ARG1 (h / hat))) :ARG1 (h2 / horse))"
    )
    for root in ("r", "w"):
        samples = samples_of(graph, root=root, detail=1.0)
        worn = [[n.concept for n in s.nodes.values()].count("wear-01") for s in samples]
        assert max(worn) == 1


def test_an_event_that_nobody_does_is_no_sample():
    graph = read_penman("(s / sit-01 :location (b / bench) :time (e / evening))")
    assert samples_of(graph, root="s") == []
