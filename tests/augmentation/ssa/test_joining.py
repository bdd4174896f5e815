"""Several events in one caption."""

from __future__ import annotations

import numpy as np
import pytest

from augmentation.ssa.graph import Edge, Graph, Name, Node
from augmentation.ssa.method import join_events
from augmentation.ssa.realiser import Realiser
from augmentation.ssa.word_usage import NounForms
from augmentation.ssa.written_captions import caption_of

PLACES = {"boy": 0, "horse": 1, "girl": 2, "ball": 3}


def event(verb: str, subject: str, *objects: str, box: dict[str, int] | None = None) -> Graph:
    """Somebody does something to something; a thing's name is its variable, and has its box."""
    nodes = {verb: Node((Name(f"{verb}-01", verb),))}
    boxes = PLACES | (box or {})
    for noun in (subject, *objects):
        name = Name(noun, noun, article="a", noun=True)
        nodes[noun] = Node((name,), regions=frozenset((boxes[noun],)))
    edges = [Edge(verb, f"ARG{n}", noun) for n, noun in enumerate((subject, *objects))]
    return Graph(nodes, tuple(edges), verb)


def sentences(*graphs: Graph) -> set[str]:
    """All that is said of events put side by side."""
    nouns = NounForms(graphs)
    joined = join_events(graphs, np.random.default_rng(0), tries=20)
    pieces = (Realiser(graph=graph, style="progressive", nouns=nouns).pieces() for graph in joined)
    return {caption_of(pieces).text for pieces in pieces}


def test_one_subject_is_named_once() -> None:
    texts = sentences(event("ride", "boy", "horse"), event("wave", "boy"))
    assert texts == {
        "A boy is riding a horse and waving.",
        "A boy is waving and riding a horse.",
    }


def test_three_events_of_two_subjects() -> None:
    texts = sentences(
        event("ride", "boy", "horse"), event("wave", "boy"), event("throw", "girl", "ball")
    )
    assert "A boy is riding a horse while a girl is throwing a ball." in texts
    assert "A boy is riding a horse and waving while a girl is throwing a ball." in texts
    assert "A girl is throwing a ball while a boy is waving and riding a horse." in texts


@pytest.mark.parametrize(
    "other",
    [
        event("watch", "girl", "boy"),  # he would be "him" of one that rides
        event("ride", "girl", "ball"),  # one verb for both
        event("throw", "girl", "ball", box={"ball": 1}),  # the ball may be the horse
        event("wear", "boy", "ball"),  # belongs to whoever is named
    ],
)
def test_what_may_be_the_same_is_not_put_side_by_side(other: Graph) -> None:
    assert sentences(event("ride", "boy", "horse"), other) == set()


def test_draws_are_repeatable() -> None:
    graphs = [event("ride", "boy", "horse"), event("wave", "boy"), event("throw", "girl", "ball")]
    first, again = (list(join_events(graphs, np.random.default_rng(1), tries=3)) for _ in range(2))
    assert first == again
    assert list(join_events(graphs, np.random.default_rng(1), tries=0)) == []
