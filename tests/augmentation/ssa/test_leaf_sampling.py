"""Samples as the authors' code draws them."""

from __future__ import annotations

import numpy as np

from augmentation.ssa.event_sampling import LeafSampler, Sampler
from augmentation.ssa.graph import Graph
from augmentation.ssa.penman import read_penman

TRIES = """
(t / try-01
   :ARG0 (m / man :quant 2 :mod (o / old))
   :ARG1 (c / catch-01 :ARG0 m :ARG1 (b / ball) :location (p / park))
   :ARG4 (d / dog)
   :time (e / evening))
"""


def of_root(graph: Graph, concept: str = "try-01") -> list[set[str]]:
    """Labels of each sample of a predicate."""
    return [
        {node.concept for node in sample.nodes.values()}
        for sample in LeafSampler(graph, np.random.default_rng(0)).samples()
        if sample.nodes[sample.root].concept == concept
    ]


def test_arguments_come_first_then_all_down_to_the_leaves():
    event = {"try-01", "man", "2", "catch-01"}
    everything = {*event, "old", "ball", "park", "dog", "evening"}
    assert of_root(read_penman(TRIES)) == [event, event | {"dog"}, everything]


def test_what_hangs_below_an_argument_is_reached_by_no_other_sampler():
    drawn = Sampler(read_penman(TRIES), np.random.default_rng(0), detail=1.0)
    samples = [sample for _ in range(50) for sample in drawn.samples() if sample.root == "t"]
    assert not any(node.concept == "park" for s in samples for node in s.nodes.values())


def test_a_sample_has_one_edge_of_a_role_and_at_least_three_nodes():
    graph = read_penman(
        "(s / see-01 :ARG0 (b / boy) :ARG1 (c / cat) :ARG1 (d / dog) :ARG1 (w / wait-01 :ARG0 b))"
    )
    seen = {
        frozenset(labels)
        for seed in range(30)
        for labels in [
            {node.concept for node in sample.nodes.values()}
            for sample in LeafSampler(graph, np.random.default_rng(seed)).samples()
        ]
    }
    assert seen == {
        frozenset({"see-01", "boy", "cat"}),
        frozenset({"see-01", "boy", "dog"}),
        frozenset({"see-01", "boy", "wait-01"}),
    }, "a boy who waits is two nodes"


def test_lists_and_denials_stay_whole():
    graph = read_penman(
        "(s / sit-01 :polarity - :ARG1 (a / and :op1 (b / boy) :op2 (g / girl)) :mod (q / quiet))"
    )
    first, everything = of_root(graph, "sit-01")
    assert first == {"sit-01", "-", "and", "boy", "girl"}
    assert everything == first | {"quiet"}
