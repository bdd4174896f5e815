"""Several events in one caption."""

from __future__ import annotations

import numpy as np
import pytest

from augmentation.captions.ssa.graph import Edge, Graph, Name, Node
from augmentation.captions.ssa.joining import joined
from augmentation.captions.ssa.nouns import NounForms
from augmentation.captions.ssa.realiser import Realiser
from augmentation.captions.ssa.sentences import caption_of

PLACES = {"boy": 0, "horse": 1, "girl": 2, "ball": 3}


def event(verb: str, who: str, *what: str, box: dict[str, int] | None = None) -> Graph:
    """Somebody does something to something; a thing's name is its variable, and has its box."""
    nodes = {verb: Node((Name(f"{verb}-01", verb),))}
    boxes = PLACES | (box or {})
    for thing in (who, *what):
        name = Name(thing, thing, article="a", noun=True)
        nodes[thing] = Node((name,), regions=frozenset((boxes[thing],)))
    edges = [Edge(verb, f"ARG{n}", thing) for n, thing in enumerate((who, *what))]
    return Graph(nodes, tuple(edges), verb)


def said(*graphs: Graph) -> set[str]:
    """All that is said of events put side by side."""
    nouns = NounForms(graphs)
    found = joined(graphs, np.random.default_rng(0), tries=20)
    pieces = (Realiser(graph=graph, style="progressive", nouns=nouns).pieces() for graph in found)
    return {caption_of(one).text for one in pieces}


def test_one_subject_is_named_once() -> None:
    texts = said(event("ride", "boy", "horse"), event("wave", "boy"))
    assert texts == {
        "A boy is riding a horse and waving.",
        "A boy is waving and riding a horse.",
    }


def test_three_events_of_two_subjects() -> None:
    texts = said(
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
    assert said(event("ride", "boy", "horse"), other) == set()


def test_draws_are_repeatable() -> None:
    graphs = [event("ride", "boy", "horse"), event("wave", "boy"), event("throw", "girl", "ball")]
    first, again = (list(joined(graphs, np.random.default_rng(1), tries=3)) for _ in range(2))
    assert first == again
    assert list(joined(graphs, np.random.default_rng(1), tries=0)) == []
